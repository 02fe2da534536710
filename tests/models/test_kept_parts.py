"""The parts of modules that are kept are those that would be found anew, after every kind of change."""

import copy
import pickle
import threading

import pytest
import torch
from support.zoo import fresh
from torch import nn

from tpt_lib.models import identity, kept_parts
from tpt_lib.models.identity import module_parts
from tpt_lib.models.kept_parts import KeptParts


def tree():
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.LayerNorm(2), nn.GELU()))


CHANGES = {
    "a setting": lambda m: setattr(m[1][0], "eps", 0.5),
    "a weight": lambda m: setattr(m[0], "weight", nn.Parameter(torch.ones(2, 2))),
    "no weight": lambda m: setattr(m[0], "bias", None),
    "a buffer": lambda m: m[1].register_buffer("mask", torch.ones(2)),
    "a tensor": lambda m: setattr(m[1], "mask", torch.ones(2)),
    "a hook": lambda m: m[0].register_forward_hook(print),
    "an activation": lambda m: m[1].__setitem__(1, nn.ReLU()),
    "a module": lambda m: m[1].append(nn.Linear(2, 2)),
    "a function": lambda m: setattr(m[1][1], "forward", torch.sin),
    "a name": lambda m: vars(m[1]).update(extra=vars(m[1]).pop("own")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_seen(change):
    module, kept = tree(), KeptParts()
    module[1].own = 3  # the last attribute, so that only its name can change
    before = kept.read(module.modules)
    CHANGES[change](module)
    after = kept.read(module.modules)
    assert identity.Fingerprint(after).same(identity.Fingerprint(module_parts(module.modules())))
    assert not identity.Fingerprint(after).same(identity.Fingerprint(before))


def test_a_tree_that_did_not_change_is_read_once(monkeypatch):
    module, kept, calls = tree(), KeptParts(), []
    monkeypatch.setattr(kept_parts, "module_parts", lambda modules: calls.append(1) or module_parts(modules))
    first = kept.read(module.modules)
    with torch.no_grad():
        module[0].weight += 1  # the same part, of another version
    first.append("what the caller does with the list")
    assert len(kept.read(module.modules)) == len(first) - 1
    assert len(calls) == 1
    module.train(not module.training)
    kept.read(module.modules)
    assert len(calls) == 2


def test_order_of_hooks():
    module, kept = tree(), KeptParts()
    for hook in (print, repr):
        module[0].register_forward_hook(hook)
    kept.read(module.modules)
    module[0]._forward_hooks.move_to_end(next(iter(module[0]._forward_hooks)))
    functions = [part for part in kept.read(module.modules) if part in (print, repr)]
    assert functions == [repr, print]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_of_a_model_has_its_own_parts(copied):
    model = fresh("open_clip-vit")
    model.text_parts()
    other = copied(model)
    assert identity.Fingerprint(other.text_parts()).same(identity.Fingerprint(module_parts(other._text_modules())))
    assert not identity.Fingerprint(other.text_parts()).same(identity.Fingerprint(model.text_parts()))


def test_threads_may_share_it():
    module, kept, found = tree(), KeptParts(), []
    threads = [threading.Thread(target=lambda: found.append(len(kept.read(module.modules)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [len(module_parts(module.modules()))] * 8
