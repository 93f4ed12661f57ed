"""What a host is and runs: facts for plans, status and doctor."""
