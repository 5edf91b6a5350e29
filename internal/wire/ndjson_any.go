package wire

import (
	"encoding/json"
	"errors"
	"fmt"
)

// fields are the fields of a record of a log stream.
type fields struct {
	Stream  json.RawMessage `json:"stream"`
	Data    json.RawMessage `json:"data"`
	Command *Command        `json:"command"`
}

// decodeAny decodes a line of any form.
func decodeAny(text []byte) (Record, error) {
	f, err := decodeFields(text)
	if err != nil {
		return Record{}, err
	}
	if text[0] != '{' {
		return Record{}, &LineError{Err: errors.New("it is not an object")}
	}
	return f.record()
}

func decodeFields(text []byte) (f fields, err error) {
	if err := json.Unmarshal(text, &f); err != nil {
		if _, ok := errors.AsType[*json.SyntaxError](err); ok {
			return f, notJSON(text, err)
		}
		return f, &LineError{Err: err}
	}
	return f, nil
}

// stream returns the name of the stream, "" if there is none.
func (f *fields) stream() (name string, err error) {
	if len(f.Stream) > 0 {
		if err := json.Unmarshal(f.Stream, &name); err != nil {
			return "", &LineError{Err: fmt.Errorf("stream: %w", err)}
		}
	}
	return name, nil
}

// record returns the record that the fields describe.
func (f *fields) record() (Record, error) {
	stream, err := f.stream()
	if err != nil {
		return Record{}, err
	}
	switch stream {
	case "stdout", "stderr":
		var data *string
		if len(f.Data) > 0 {
			if err := json.Unmarshal(f.Data, &data); err != nil {
				return Record{}, &LineError{Err: fmt.Errorf("data of %s: %w", stream, err)}
			}
		}
		if data == nil {
			return Record{}, &LineError{Err: fmt.Errorf("%s without data", stream)}
		}
		return Record{Kind: outputKinds[stream], Data: []byte(*data)}, nil
	case "error":
		var data *RecordError
		if len(f.Data) > 0 {
			if err := json.Unmarshal(f.Data, &data); err != nil {
				return Record{}, &LineError{Err: fmt.Errorf("data of error: %w", err)}
			}
		}
		if data == nil {
			return Record{}, &LineError{Err: errors.New("error without data")}
		}
		return Record{Kind: KindError, Error: data}, nil
	case "":
		if f.Command != nil {
			return Record{Kind: KindCommand, Command: f.Command}, nil
		}
	}
	return Record{Kind: KindUnknown}, nil
}

// outputKinds maps the names of output streams to kinds.
var outputKinds = map[string]Kind{"stdout": KindStdout, "stderr": KindStderr}

func notJSON(text []byte, err error) *LineError {
	return &LineError{NotJSON: true, Excerpt: string(text[:min(len(text), maxExcerpt)]), Err: err}
}
