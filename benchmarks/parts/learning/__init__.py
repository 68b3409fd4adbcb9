"""The parts of the learning benchmark: the processor that runs take, and learners of another library."""
