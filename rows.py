"""Rows of some cells of a grid, and of all of them."""

import torch


def rows_at(rows: torch.Tensor, cells: torch.Tensor | None) -> torch.Tensor:
    """(..., M, C): the rows of (..., h * w, C) at `cells`, (M,) of all or (..., M) of each; all rows where that is `None`."""
    if cells is None:
        return rows
    return rows[..., cells, :] if cells.ndim == 1 else rows.gather(-2, _of_each(rows, cells))


def rows_of_all(
    rows: torch.Tensor, cells: torch.Tensor | None, count: int, lowest: torch.Tensor | None = None
) -> torch.Tensor:
    """(..., count, C): `rows` (..., M, C) at the places `cells`, see `rows_at`; elsewhere `lowest` (..., 1, C), or 0."""
    if cells is None:
        return rows
    others = rows.new_zeros(1) if lowest is None else lowest
    others = others.expand(*rows.shape[:-2], count, rows.shape[-1])
    return others.index_copy(-2, cells, rows) if cells.ndim == 1 else others.scatter(-2, _of_each(rows, cells), rows)


def _of_each(rows: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
    return cells[..., None].expand(*cells.shape, rows.shape[-1])
