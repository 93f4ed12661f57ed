"""All rules, one module a family; importing this registers them."""

from fleetctl.doctor.rules import cfg as cfg
from fleetctl.doctor.rules import cfg_memory as cfg_memory
from fleetctl.doctor.rules import gpu as gpu
from fleetctl.doctor.rules import model as model
from fleetctl.doctor.rules import net as net
from fleetctl.doctor.rules import svc as svc
from fleetctl.doctor.rules import sys as sys
