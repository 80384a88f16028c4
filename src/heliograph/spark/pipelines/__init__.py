"""Ready pipelines (D4, D5): archive, audit, replay, dead letters, composite events. `helio pipeline` starts them."""
