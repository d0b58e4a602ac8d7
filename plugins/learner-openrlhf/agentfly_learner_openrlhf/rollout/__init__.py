"""Inside OpenRLHF's rollout actors: AgentFly's engine over vLLM."""
