package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// fields are the fields of a record of a log stream.
type fields struct {
	Stream  json.RawMessage `json:"stream"`
	Data    json.RawMessage `json:"data"`
	Command *Command        `json:"command"`
}

// decodeAny decodes a line of any form.
func decodeAny(text []byte) (Record, error) {
	var f fields
	err := json.Unmarshal(text, &f)
	if _, number := errors.AsType[*json.UnmarshalTypeError](err); number {
		whole, _ := io.ReadAll(NewReader(bytes.NewReader(text)))
		err = json.Unmarshal(whole, &f)
	}
	if err != nil {
		if _, ok := errors.AsType[*json.SyntaxError](err); ok {
			return Record{}, &LineError{NotJSON: true, Excerpt: string(text[:min(len(text), maxExcerpt)]), Err: err}
		}
		return Record{}, &LineError{Err: err}
	}
	if text[0] != '{' {
		return Record{}, &LineError{Err: errors.New("it is not an object")}
	}
	return f.record()
}

// record returns the record that the fields describe.
func (f *fields) record() (Record, error) {
	var stream string
	if len(f.Stream) > 0 {
		if err := json.Unmarshal(f.Stream, &stream); err != nil {
			return Record{}, &LineError{Err: fmt.Errorf("stream: %w", err)}
		}
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
