"""How the tokens of some classes are packed: the prefix that all share once, then each class's own, shortest class first.

Everything that the packed engine needs to know about prompts is computed here, on the prompts' device, and cached.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.text.place_tokens import Place, free_places

Layout = Literal["ragged", "padded"]
FEW = 64  # number of tokens up to which one masked product is faster than attention in groups
MOST_PADDING = 3  # largest number of cells in a padded group per token that its classes attend to


@dataclass(frozen=True)
class Grid:
    """A padded group: rows of ``width`` queries, each row with the keys [shared prefix; own tokens].

    Classes come first, a row each; the first grid also has rows for the prefix's own queries.
    """

    classes: int
    rows: int
    tokens: Tensor  # the packed token of each cell of the rows (R * (prefix + width),)
    mask: Tensor  # what is added to the scores (R, 1, width, prefix + width)
    last: Tensor  # the same for the last query of each class (classes, 1, 1, prefix + width)
    fused: bool = True

    def to(self, device: torch.device) -> Grid:
        return replace(self, tokens=self.tokens.to(device), mask=self.mask.to(device), last=self.last.to(device))

    def repeated(self, batch: int, dtype: torch.dtype) -> Grid:
        """Return the grid with masks for a batch ``(B * R, …)``, in the dtype of the scores."""
        masks = (mask.to(dtype).expand(batch, *mask.shape).flatten(0, 1) for mask in (self.mask, self.last))
        return replace(self, mask=next(masks), last=next(masks))


@dataclass(frozen=True)
class Packing:
    """The packed tokens of some classes, and how attention sees them."""

    prefix: int
    groups: list[tuple[int, int]]  # classes, and the length of each: the groups of the ragged layout
    ids: Tensor
    positions: Tensor
    places: list[Place]
    ends: Tensor  # where each class's text ends in the packing
    seen: Tensor | None  # for few tokens: which ones (columns) each one (row) attends to
    grids: list[Grid]  # the groups of the padded layout; empty for the ragged layout and for few tokens
    cells: Tensor | None  # where each packed token is among the queries of all grids, in order

    @classmethod
    def of(cls, prompts: ClassPrompts, part: Tensor, layout: Layout) -> Packing:
        """Pack classes that are sorted by length."""
        prefix, device = prompts.prefix, prompts.context.device
        own = prompts.lengths[part] - prefix
        lengths, counts = own.unique_consecutive(return_counts=True)
        inside = torch.arange(prompts.ids.shape[1]) < prompts.lengths[part, None]
        inside[:, :prefix] = False
        rows, columns = inside.nonzero(as_tuple=True)
        classes = torch.cat([part[:1].expand(prefix), part[rows]])
        positions = torch.cat([torch.arange(prefix), columns])
        few = len(classes) <= FEW
        grids, cells = _grids(own.tolist(), prefix) if layout == "padded" and not few else ([], None)
        return cls(
            prefix=prefix,
            groups=list(zip(counts.tolist(), lengths.tolist(), strict=True)),
            ids=prompts.ids[classes, positions].to(device),
            positions=positions.to(device),
            places=free_places(prompts, classes, positions),
            ends=(prefix + own.cumsum(0) - 1).to(device),
            seen=_seen(rows, prefix).to(device) if few else None,
            grids=[grid.to(device) for grid in grids],
            cells=None if cells is None else cells.to(device),
        )

    def unfused(self) -> Packing:
        """Return the packing for a graph that batches of gradients are pulled back through together."""
        return replace(self, grids=[replace(grid, fused=False) for grid in self.grids])

    def repeated(self, batch: int, dtype: torch.dtype) -> Packing:
        """Return the packing with the masks of its grids for a batch of contexts, in the dtype of the scores."""
        return replace(self, grids=[grid.repeated(batch, dtype) for grid in self.grids]) if self.grids else self


def _seen(rows: Tensor, prefix: int) -> Tensor:
    owners = torch.cat([torch.full((prefix,), -1), rows])
    return ((owners == -1) | (owners == owners[:, None])).tril()


def _grids(lengths: list[int], prefix: int) -> tuple[list[Grid], Tensor]:
    """Return as few padded groups as keep the padding in bounds, and the cell of each packed token."""
    grids: list[Grid] = []
    cells = torch.zeros(prefix + sum(lengths), dtype=torch.int64)
    start, filled, token = 0, 0, prefix
    while start < len(lengths):
        shortest = lengths[start]
        end = start + sum(prefix + length <= MOST_PADDING * (prefix + shortest) for length in lengths[start:])
        own, width = lengths[start:end], lengths[end - 1]
        grid, queries = _grid(own, width, prefix, token, with_prefix=not grids)
        at = queries >= 0
        cells[queries[at]] = filled + at.nonzero().squeeze(1)
        grids.append(grid)
        start, filled, token = end, filled + len(queries), token + sum(own)
    return grids, cells


def _grid(lengths: list[int], width: int, prefix: int, first: int, *, with_prefix: bool) -> tuple[Grid, Tensor]:
    """Return the grid of classes whose tokens begin at ``first``, and the packed token of each query, -1 for padding."""
    own = torch.tensor(lengths)[:, None]
    columns = torch.arange(width)
    queries = torch.where(columns < own, first + own.cumsum(0) - own + columns, -1)
    mask = torch.ones(width, prefix + width, dtype=torch.bool).tril(prefix).expand(len(lengths), -1, -1)
    if with_prefix:
        asked = torch.arange(-(-prefix // width) * width).unflatten(0, (-1, width))
        sees = torch.arange(prefix + width) <= asked[..., None]  # and none of the row's own cells, but for padding
        queries = torch.cat([queries, torch.where(asked < prefix, asked, -1)])
        mask = torch.cat([mask, sees])
    tokens = torch.cat([torch.arange(prefix).expand(len(queries), prefix), queries.clamp(min=0)], dim=1)
    added = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)[:, None]
    last = added[torch.arange(len(lengths)), :, own[:, 0] - 1, None]
    return Grid(len(lengths), len(tokens), tokens.flatten(), added, last), queries.flatten()
