"""SSH connection, agent channel and bulk transfer."""
