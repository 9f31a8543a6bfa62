"""Off-policy evaluation: what policies are worth that never acted, from data of others."""
