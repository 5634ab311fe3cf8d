"""Finds a project on disk, reads its settings and loads its tables; keeps the graph for next time."""

from icefield.project.config import Profile as Profile
from icefield.project.config import find_project as find_project
from icefield.project.project import Functions as Functions
from icefield.project.project import Project as Project
from icefield.project.project import load_functions as load_functions
from icefield.project.project import open_project as open_project
