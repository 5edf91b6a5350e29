// Package folder runs the commands of boxes as host processes that work in a folder, on
// every system. If the host is root, they have the rights of nobody.
package folder
