// The release command makes files of a release; `make release` makes all of them.
//
//	release [--platforms=OS/ARCH,...] VERSION IMAGE DIRECTORY   archives of the plug-in, the chart, the manifest for Krew
//	release checksums DIRECTORY                                 checksums.txt, of all files in the directory
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/cadastre-dev/cadastre/hack/release"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	platforms := flag.String("platforms", strings.Join(release.Platforms(), ","), "platforms of the plug-in")
	flag.Parse()
	switch args := flag.Args(); {
	case len(args) == 2 && args[0] == "checksums":
		return release.WriteChecksums(args[1])
	case len(args) == 3:
		r := release.Release{Version: args[0], Image: args[1], Dir: args[2], Platforms: strings.Split(*platforms, ",")}
		return r.Write(ctx)
	default:
		return fmt.Errorf("usage: release VERSION IMAGE DIRECTORY, or release checksums DIRECTORY")
	}
}
