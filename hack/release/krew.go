package release

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"text/template"
)

// writeKrew fills in the manifest for Krew, as krew-release-bot does, with the checksums of
// archives by their names.
func (r *Release) writeKrew(sums map[string]string) error {
	text, err := os.ReadFile(".krew.yaml")
	if err != nil {
		return err
	}
	type values struct{ TagName string }
	funcs := template.FuncMap{"addURIAndSha": func(address, tag string) (string, error) {
		uri, err := execute(address, values{tag}, nil)
		if err != nil {
			return "", err
		}
		sum, ok := sums[path.Base(uri)]
		if !ok {
			return "", fmt.Errorf("%s: no archive of the release has this name", path.Base(uri))
		}
		return fmt.Sprintf("uri: %s\n    sha256: %s", uri, sum), nil
	}}
	filled, err := execute(string(text), values{r.Version}, funcs)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.Dir, "ipam.yaml"), []byte(filled), 0o644)
}

func execute(text string, values any, funcs template.FuncMap) (string, error) {
	parsed, err := template.New("").Funcs(funcs).Parse(text)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, values)
	return out.String(), err
}
