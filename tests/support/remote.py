"""What a spawned process runs: functions that can be imported there."""

import os

import tpt_lib


def predict_elsewhere(model, prompts, views, prediction):
    """Return zero-shot and tuned logits, the logits of a prediction that was sent, and the process."""
    found = tpt_lib.tpt_predict(model, prompts, views, steps=2)
    again = tpt_lib.zero_shot_predict(model, prompts, views)
    return found.logits, again.logits, prediction.logits, prediction.label, os.getpid()
