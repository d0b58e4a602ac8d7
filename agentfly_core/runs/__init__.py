"""What a run leaves on disk: recipe, status, metrics, trajectories, checkpoints."""

from agentfly_core.runs.checkpoints import Checkpoints
from agentfly_core.runs.folder import RunFolder
from agentfly_core.runs.metrics import MetricsLog
from agentfly_core.runs.status import RunStatus
from agentfly_core.runs.trajectories import TrajectoryWriter, read_trajectories

__all__ = ["Checkpoints", "MetricsLog", "RunFolder", "RunStatus", "TrajectoryWriter", "read_trajectories"]
