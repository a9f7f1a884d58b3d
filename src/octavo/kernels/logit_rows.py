"""`fewer_rows`: a step as ops see it that run over its logit rows alone."""

from dataclasses import replace

import numpy as np

from octavo.errors import EngineError
from octavo.kernels.arrays import IntArray
from octavo.kernels.interpreter import StepInput


def fewer_rows(step: StepInput) -> StepInput | None:
    """The same requests, each with as many rows as it has logit rows; ``None`` if the step wants all rows.

    Raises:
        EngineError: no others are wanted, and logit rows are out of order, or apart within a request.
    """
    if not step.only_logit_rows:
        return None
    rows = step.logit_rows
    owners = np.searchsorted(step.query_start_loc, rows, side="right") - 1
    if not ((np.diff(rows) == 1) | (np.diff(owners) > 0)).all():
        raise EngineError(
            "logit rows must be in order, and consecutive within a request, if no others are wanted"
        )
    if len(rows) == len(step.token_ids):
        return None
    counts: IntArray = np.bincount(owners, minlength=len(step.seq_lens)).astype(np.int32)
    return replace(
        step,
        token_ids=step.token_ids[rows],
        positions=step.positions[rows],
        query_start_loc=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        logit_rows=np.arange(len(rows), dtype=np.int32),
        only_logit_rows=False,
    )
