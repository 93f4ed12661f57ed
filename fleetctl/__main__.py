"""``python -m fleetctl`` is the ``fleetctl`` command."""

from fleetctl.cli.app import main

if __name__ == "__main__":
    main()
