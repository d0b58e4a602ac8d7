"""Inside OpenRLHF's trainers: AgentFly's batches, advantages, loss, checkpoints and metrics."""
