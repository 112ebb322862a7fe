package bundle

import (
	"archive/zip"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Index lists the files of a bundle, and the objects that could not be read.
type Index struct {
	// Created is the API server's time.
	Created string `json:"created"`
	// Scope names the namespaces of the bundle.
	Scope string `json:"scope"`
	// Operator is the operator's namespace.
	Operator string `json:"operatorNamespace"`
	Files    []File `json:"files"`
	// Unread lists the objects that could not be read.
	Unread []Unread `json:"unread,omitempty"`
}

// File describes one file of a bundle.
type File struct {
	Name string `json:"name"`
	// Objects is the number of objects in the file; zero for reports and logs.
	Objects int `json:"objects,omitempty"`
}

// Unread names objects or logs that could not be read, and the reason.
type Unread struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// archive writes a ZIP file. All its contents pass the filter.
type archive struct {
	*zip.Writer
	index  Index
	filter *Filter
	now    time.Time
}

// create begins a file.
func (a *archive) create(name string) (io.Writer, error) {
	a.index.Files = append(a.index.Files, File{Name: name})
	return a.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: a.now})
}

// text writes a file.
func (a *archive) text(name, text string) error {
	w, err := a.create(name)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, a.filter.Text(text))
	return err
}

// value writes a file with a value as YAML.
func (a *archive) value(name string, value any) error {
	text, err := yaml.Marshal(value)
	if err != nil {
		return err
	}
	return a.text(name, string(text))
}

// unread records in the index that something could not be read, and why.
func (a *archive) unread(what string, err error) {
	a.index.Unread = append(a.index.Unread, Unread{What: what, Why: a.filter.Text(err.Error())})
}

// objects appends objects to a file, as a stream of YAML documents.
func (a *archive) objects(w io.Writer, items []unstructured.Unstructured) error {
	for i := range items {
		Redact(&items[i])
		text, err := yaml.Marshal(items[i].Object)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(w, "---\n"+a.filter.Text(string(text))); err != nil {
			return err
		}
	}
	a.index.Files[len(a.index.Files)-1].Objects += len(items)
	return nil
}

// finish writes the index and ends the ZIP file.
func (a *archive) finish() error {
	index := a.index
	index.Files = append([]File{}, index.Files...)
	if err := a.value("index.yaml", index); err != nil {
		return err
	}
	return a.Close()
}
