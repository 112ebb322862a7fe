// Command netbox-provisioner makes the pools of IPClasses from prefixes of NetBox: an example of package
// provisioner.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/cadastre-dev/cadastre/provisioner"
)

func main() {
	if err := run(ctrl.SetupSignalHandler(), os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

// run reads the flags, and runs the provisioner until ctx is done.
func run(ctx context.Context, args []string) error {
	flags, o := flag.NewFlagSet("netbox-provisioner", flag.ContinueOnError), provisioner.Options{Log: klog.Background()}
	flags.StringVar(&o.Name, "name", "ipam.example.com/netbox", "spec.provisioner of the IPClasses whose pools it makes")
	flags.StringVar(&o.Namespace, "namespace", "cadastre-system", "the namespace of its lease and of the ConfigMap with its keys")
	base := flags.String("netbox-url", "", "the URL of NetBox, such as https://netbox.example.com")
	tokenFile := flags.String("token-file", "", "the file with the token of NetBox, which is read for each request")
	if err := flags.Parse(args); err != nil {
		return err
	}
	netbox, err := newClient(*base, http.DefaultTransport, func() (string, error) { return readToken(*tokenFile) })
	if err != nil {
		return fmt.Errorf("--netbox-url: %w", err)
	}
	if *tokenFile == "" {
		return errors.New("--token-file is not set: set it")
	}
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	return provisioner.Run(ctx, cfg, &netBox{netbox}, o)
}

func readToken(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("--token-file: %s is empty: write the token of NetBox into it", file)
	}
	return token, nil
}
