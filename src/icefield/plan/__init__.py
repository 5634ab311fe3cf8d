"""What a run would do and why, decided from the graph and the state of the lake alone: no Spark, no clock, no disk."""

from icefield.plan.arrivals import arrivals_of as arrivals_of
from icefield.plan.decide import Action as Action
from icefield.plan.decide import Range as Range
from icefield.plan.decide import Step as Step
from icefield.plan.decide import Wishes as Wishes
from icefield.plan.decide import decide as decide
from icefield.plan.decide import has_newer_inputs as has_newer_inputs
from icefield.plan.decide import read_by_all as read_by_all
from icefield.plan.due import Cause as Cause
from icefield.plan.due import Due as Due
from icefield.plan.due import due as due
from icefield.plan.plan import Plan as Plan
from icefield.plan.plan import make_plan as make_plan
from icefield.plan.plan import with_quarantines as with_quarantines
