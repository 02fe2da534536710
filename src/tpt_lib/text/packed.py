"""The packed text engine: compute what all classes share once, and only what a feature depends on.

In a causal tower, positions before the class name do not see it: they are computed once, not K times. From the name to the
end of text, the tokens of all classes are packed without padding, and attend to [shared prefix; own]. Nothing after the end
is computed, and the last block is computed only at the end of each text.
"""

from __future__ import annotations

from torch import Tensor

from tpt_lib.models.protocol import CausalTower
from tpt_lib.text.attention import attention
from tpt_lib.text.packing import Packing
from tpt_lib.text.place_tokens import put_tokens


def packed_features(tower: CausalTower, packing: Packing, context: Tensor, name_tokens: Tensor | None) -> Tensor:
    """Return features ``(B, k, E)`` of the packed classes, not normalized; ``context`` is ``(B, 1 or K, L, D)``."""
    x = put_tokens(tower.embed(packing.ids), packing.places, context, name_tokens)
    x = x + tower.positions.index_select(0, packing.positions).to(x.dtype)
    packing = packing.repeated(len(x), x.dtype)
    *blocks, last = tower.blocks
    for block in blocks:
        x = block.merge(x, attention(packing, block.qkv(x), block.heads))
    return tower.finish(
        last.merge(x.index_select(1, packing.ends), attention(packing, last.qkv(x), last.heads, last=True))
    )
