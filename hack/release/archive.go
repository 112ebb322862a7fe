package release

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"time"
)

// file represents one file of an archive.
type file struct {
	name string
	// path is the file with its content; if it is empty, content has it.
	path    string
	content []byte
	mode    fs.FileMode
}

func (f *file) read() ([]byte, error) {
	if f.path == "" {
		return f.content, nil
	}
	return os.ReadFile(f.path)
}

// epoch returns the modification time of all files in archives, so that an archive depends only on
// the contents of its files. A zip has no earlier time.
func epoch() time.Time { return time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC) }

// writeTar writes a tar that is compressed by gzip.
func writeTar(path string, files []file) (err error) {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	compressed, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressed)
	for i := range files {
		content, err := files[i].read()
		if err != nil {
			return err
		}
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: files[i].name, Mode: int64(files[i].mode), Size: int64(len(content)),
			ModTime: epoch(), Format: tar.FormatUSTAR,
		}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(content); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), compressed.Close())
}

func writeZip(path string, files []file) (err error) {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	archive := zip.NewWriter(out)
	for i := range files {
		content, err := files[i].read()
		if err != nil {
			return err
		}
		header := &zip.FileHeader{Name: files[i].name, Method: zip.Deflate, Modified: epoch()}
		header.SetMode(files[i].mode)
		entry, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := entry.Write(content); err != nil {
			return err
		}
	}
	return archive.Close()
}
