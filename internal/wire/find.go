package wire

import (
	"bytes"
	"encoding/json"
)

// Find looks for the value at a path of keys, and returns the byte with which it
// begins if it is an object, a list, a string or null, and otherwise 0, and its text
// if it is a string. The key "[]" is the first element of a list. It reads no further
// than that: whether the rest of data is JSON is not its business.
func Find(data []byte, keys ...string) (kind byte, text string) {
	dec := json.NewDecoder(bytes.NewReader(data))
	for _, key := range keys {
		if !enter(dec, key) {
			return 0, ""
		}
	}
	token, err := dec.Token()
	switch t := token.(type) {
	case json.Delim:
		return byte(t), ""
	case string:
		return '"', t
	case nil:
		if err == nil {
			return 'n', ""
		}
	}
	return 0, ""
}

// enter goes on to the value of a key of what comes next.
func enter(dec *json.Decoder, key string) bool {
	open, err := dec.Token()
	if key == "[]" {
		return err == nil && open == json.Delim('[') && dec.More()
	}
	if err != nil || open != json.Delim('{') {
		return false
	}
	var skipped json.RawMessage
	for dec.More() {
		name, err := dec.Token()
		if name == key {
			return true
		}
		if err != nil || dec.Decode(&skipped) != nil {
			return false
		}
	}
	return false
}
