package agent

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// toolNames are the names by which models know these tools from elsewhere: the
// tools that their makers trained them with, and those of common programs.
var toolNames = map[string]string{
	"run_command": "bash", "Bash": "bash", "shell": "bash", "shell_command": "bash", "local_shell": "bash", "run_shell_command": "bash",
	"kill_command": "stop_command", "code_execution": "python",
	"readFile": "read_file", "Read": "read_file", "writeFile": "write_file", "Write": "write_file",
	"Edit": "edit_file", "replace": "edit_file", "LS": "list_files", "list_directory": "list_files", "list_dir": "list_files",
	"Glob": "glob", "Grep": "grep", "search_file_content": "grep", "grep_files": "grep",
}

// argumentNames are other names of arguments.
var argumentNames = map[string]string{
	"file_path": "path", "filePath": "path", "absolute_path": "path", "dir_path": "path", "file_text": "content",
	"old_str": "old_string", "new_str": "new_string", "insert_text": "new_string",
	"workdir": "cwd", "directory": "cwd", "cmd": "command", "script": "command",
	"commandId": "command_id", "timeoutSeconds": "timeout_seconds", "waitSeconds": "wait_seconds", "include": "glob", "-i": "ignore_case",
	"timeoutMinutes": "timeout_minutes", "namePrefix": "name_prefix", "denyNetwork": "deny_network",
}

// rename gives arguments the names that they have here. An argument that is
// given by its own name stays.
func rename(given map[string]json.RawMessage) {
	for _, other := range slices.Sorted(maps.Keys(argumentNames)) { // the same one of two each time
		name := argumentNames[other]
		if _, both := given[name]; !both && given[other] != nil {
			given[name] = given[other]
			delete(given, other)
		}
	}
	for _, name := range []string{"timeout_ms", "timeout"} { // Codex and Claude Code count milliseconds
		ms, err := strconv.ParseFloat(string(given[name]), 64)
		if err != nil {
			continue
		}
		if _, both := given["timeout_seconds"]; !both {
			given["timeout_seconds"] = json.RawMessage(strconv.FormatFloat(ms/1000, 'f', -1, 64))
		}
		delete(given, name)
	}
	if given["command"] == nil && string(given["restart"]) == "true" { // Claude's bash tool
		given["command"] = json.RawMessage(`""`)
	}
	if given["command"] != nil || given["code"] != nil {
		delete(given, "description") // of the command, for people
	}
}

// shellTool returns start_command for a call of bash, as Claude Code makes it,
// that asks for that. It is allowed or not as the tool that it is.
func shellTool(args json.RawMessage) (string, json.RawMessage) {
	const background = "run_in_background"
	given, err := object(args)
	if err != nil || given[background] == nil {
		return "bash", args
	}
	name := "bash"
	switch string(given[background]) {
	case "true":
		name = "start_command"
		for _, limit := range []string{"timeout", "timeout_ms", "timeout_seconds", "timeoutSeconds"} {
			delete(given, limit) // it runs until it is stopped
		}
	case "false":
	default:
		return name, args
	}
	delete(given, background)
	own, err := json.Marshal(given)
	if err != nil {
		return name, args
	}
	return name, own
}

// editor is a call of Claude's text editor, which is one tool.
type editor struct {
	Command   string `json:"command"`
	ViewRange []int  `json:"view_range"`
}

// ownName returns the tool that is meant by a name, and its arguments.
func ownName(name string, args json.RawMessage) (string, json.RawMessage) {
	if name != "str_replace_based_edit_tool" && name != "str_replace_editor" {
		if own, ok := toolNames[name]; ok {
			name = own
		}
		if name == "bash" {
			return shellTool(args)
		}
		return name, args
	}
	var e editor
	given, err := object(args)
	if err != nil || json.Unmarshal(args, &e) != nil {
		return name, args
	}
	delete(given, "command")
	delete(given, "view_range")
	switch e.Command {
	case "view":
		name = "read_file"
		if len(e.ViewRange) == 2 {
			first, last := max(1, e.ViewRange[0]), e.ViewRange[1]
			given["offset"] = json.RawMessage(strconv.Itoa(first))
			if last >= first {
				given["limit"] = json.RawMessage(strconv.Itoa(last - first + 1))
			}
		}
	case "create":
		name = "write_file"
	case "str_replace", "insert":
		name = "edit_file"
	default:
		return name, args
	}
	own, err := json.Marshal(given)
	if err != nil {
		return name, args
	}
	return name, own
}
