"""The registry of curricula: how the task of the next trial is drawn."""

from policies.curriculum.base import Curriculum
from policies.curriculum.learning_progress import LearningProgress
from policies.curriculum.prioritised import Prioritised
from policies.curriculum.stages import Stages
from policies.curriculum.uniform import Uniform

CURRICULA: dict[str, type[Curriculum]] = {
    "uniform": Uniform,
    "stages": Stages,
    "learning_progress": LearningProgress,
    "prioritised": Prioritised,
}
