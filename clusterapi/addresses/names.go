package addresses

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// hashLength is the number of characters of a hash in a name.
const hashLength = 10

// claimName returns the name of the claim for an address of a device, such as web-eth0-0. The
// contract has it derived from the machine's name.
func (m *Machine) claimName(device string, index int) string {
	parts := []string{m.Owner.GetName()}
	if m.Instance != "" {
		parts = append(parts, m.Instance)
	}
	parts = append(parts, device, strconv.Itoa(index))
	return fit(strings.Join(parts, "-"), validation.DNS1123SubdomainMaxLength, validation.IsDNS1123Subdomain)
}

// instanceLabel returns the value of InstanceLabel; "" for none.
func (m *Machine) instanceLabel() string {
	return fit(m.Instance, validation.LabelValueMaxLength, validation.IsValidLabelValue)
}

// fit returns a valid name as it is, and makes a valid name of at most limit characters from any
// other: its beginning, and a hash of all of it.
func fit(name string, limit int, problems func(string) []string) string {
	if len(problems(name)) == 0 {
		return name
	}
	hash := sha256.Sum256([]byte(name))
	start := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	start = start[:min(len(start), limit-hashLength-1)]
	return strings.TrimLeft(strings.Trim(start, "-")+"-", "-") + hex.EncodeToString(hash[:])[:hashLength]
}
