"""Tasks: model, data and what to do with them, from one file; run by `nncfx compress`."""

from nncfx.renamed import attribute
from nncfx.tasks.config import TaskConfig
from nncfx.tasks.plan import PlannedHook, Prediction, TaskPlan, plan_task
from nncfx.tasks.run import Outcome, TaskResult, resume_task, run_task
from nncfx.tasks.status import RunStatus, run_status
from nncfx.tasks.task import Data, Task, read_task

__all__ = [
    "Data",
    "Outcome",
    "PlannedHook",
    "Prediction",
    "RunStatus",
    "Task",
    "TaskConfig",
    "TaskPlan",
    "TaskResult",
    "plan_task",
    "read_task",
    "resume_task",
    "run_status",
    "run_task",
]


def __getattr__(name: str) -> object:
    return attribute(__name__, name)
