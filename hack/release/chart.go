package release

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cadastre-dev/cadastre/hack/chart"
)

// writeChart writes the chart of the release, as `helm package` does: with its version, and
// with its image as the default image.
func (r *Release) writeChart() error {
	repository, tag, digest, err := splitImage(r.Image)
	if err != nil {
		return err
	}
	edits := map[string][][2]string{
		"Chart.yaml": {{`(?m)^version: .*$`, "version: " + strings.TrimPrefix(r.Version, "v")}, {`(?m)^appVersion: .*$`, "appVersion: " + r.Version}},
		"values.yaml": {
			{`(?m)^  repository: .*$`, "  repository: " + repository},
			{`(?m)^  tag: .*$`, fmt.Sprintf("  tag: %q", tag)},
			{`(?m)^  digest: .*$`, fmt.Sprintf("  digest: %q", digest)},
		},
	}
	if tag == r.Version {
		edits["values.yaml"][1][1] = `  tag: ""` // it is the appVersion
	}
	var files []file
	err = fs.WalkDir(os.DirFS(chart.Directory), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(chart.Directory, name))
		if err != nil {
			return err
		}
		for _, edit := range edits[name] {
			matches := regexp.MustCompile(edit[0])
			if n := len(matches.FindAllIndex(content, -1)); n != 1 {
				return fmt.Errorf("%s has %d lines such as %s, want one", name, n, edit[0])
			}
			content = matches.ReplaceAllLiteral(content, []byte(edit[1]))
		}
		files = append(files, file{name: path.Join("cadastre", name), content: content, mode: 0o644})
		return nil
	})
	if err != nil {
		return err
	}
	return writeTar(filepath.Join(r.Dir, "cadastre-"+strings.TrimPrefix(r.Version, "v")+".tgz"), files)
}

// splitImage returns the parts of a reference to an image that has a tag or a digest.
func splitImage(image string) (repository, tag, digest string, err error) {
	if repository, digest, ok := strings.Cut(image, "@"); ok {
		return repository, "", digest, nil
	}
	i := strings.LastIndex(image, ":")
	if i < 0 || strings.Contains(image[i:], "/") { // a slash after it means that it is a port
		return "", "", "", fmt.Errorf("image %q has neither a tag nor a digest: give one such as registry.example.com/cadastre:v0.1.0", image)
	}
	return image[:i], image[i+1:], "", nil
}
