package backend

// MarkerKey is a variable in the environment of every process of a box in folder mode. It
// identifies those that have left their process group.
const MarkerKey = "SANDBOX_BOX_ID"
