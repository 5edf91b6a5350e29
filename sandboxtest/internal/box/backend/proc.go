package backend

// MarkerKey is a variable in the environment of every process of a sandbox in folder mode.
// It identifies processes that have left their process group.
const MarkerKey = "SANDBOX_BOX_ID"
