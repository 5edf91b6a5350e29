package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"

	"github.com/go-vercel/sandbox/tools/perf/kit"
)

type file struct {
	name string
	size int64
	open func() (io.Reader, error)
}

// send uploads files as a compressed tar archive. It compresses while it sends.
func send(files []file) error {
	pr, pw := io.Pipe()
	go func() {
		bw := bufio.NewWriterSize(pw, 64<<10)
		zw, err := gzip.NewWriterLevel(bw, gzip.DefaultCompression)
		if err == nil {
			err = pack(zw, files)
		}
		if err == nil {
			err = zw.Close()
		}
		if err == nil {
			err = bw.Flush()
		}
		pw.CloseWithError(err)
	}()
	resp, err := request("POST", session+"/fs/write"+query, "application/gzip", pr)
	if err != nil {
		return err
	}
	_, err = drop(resp.Body)
	return err
}

func pack(w io.Writer, files []file) error {
	tw := tar.NewWriter(w)
	for _, f := range files {
		src, err := f.open()
		if err != nil {
			return err
		}
		if err := tw.WriteHeader(&tar.Header{Name: "vercel/sandbox/" + f.name, Size: f.size, Mode: 0o644, Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		if _, err := io.Copy(tw, src); err != nil {
			return err
		}
	}
	return tw.Close()
}

func inMemory(name string, b []byte) file {
	return file{name, int64(len(b)), func() (io.Reader, error) { return bytes.NewReader(b), nil }}
}

func uploadBig(r *kit.Run) error {
	b, err := os.ReadFile(kit.DataFile(r.Str("file")))
	if err != nil {
		return err
	}
	b = b[:r.Int("bytes")]
	return timeUpload(r, []file{inMemory("big.bin", b)}, int64(len(b)))
}

func uploadMany(r *kit.Run) error {
	b, err := os.ReadFile(kit.DataFile(r.Str("file")))
	if err != nil {
		return err
	}
	n, size := int(r.Int("files")), int(r.Int("size"))
	files := make([]file, n)
	for i := range files {
		files[i] = inMemory(kit.ManyName(i), b[i*size:(i+1)*size])
	}
	return timeUpload(r, files, int64(n*size))
}

func uploadFile(r *kit.Run) error {
	n := r.Int("bytes")
	open := func() (io.Reader, error) {
		f, err := os.Open(kit.DataFile(r.Str("file")))
		return io.LimitReader(f, n), err
	}
	return timeUpload(r, []file{{"big.bin", n, open}}, n)
}

func timeUpload(r *kit.Run, files []file, total int64) error {
	if err := create(); err != nil {
		return err
	}
	r.Bytes(total)
	return r.Timed(func() error { return send(files) })
}

func download(n int64) (*http.Response, error) {
	return post(session+"/fs/read"+query, map[string]string{"path": "/gen/" + strconv.FormatInt(n, 10)})
}

func downloadStream(r *kit.Run) error {
	if err := create(); err != nil {
		return err
	}
	want := r.Int("bytes")
	r.Bytes(want)
	return r.Timed(func() error {
		resp, err := download(want)
		if err != nil {
			return err
		}
		n, err := drop(resp.Body)
		r.Expect(n, want)
		return err
	})
}

func downloadFile(r *kit.Run) error {
	if err := create(); err != nil {
		return err
	}
	want := r.Int("bytes")
	r.Bytes(want)
	dst := kit.TempFile(fmt.Sprintf("floor-%d.bin", os.Getpid()))
	defer os.Remove(dst)
	return r.Timed(func() error {
		resp, err := download(want)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		f, err := os.Create(dst)
		if err != nil {
			return err
		}
		b := make([]byte, 256<<10)
		// The struct hides the method ReadFrom, so that io.CopyBuffer uses the buffer.
		n, err := io.CopyBuffer(struct{ io.Writer }{f}, resp.Body, b)
		r.Expect(n, want)
		return errors.Join(err, f.Close())
	})
}
