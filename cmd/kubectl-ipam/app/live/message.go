package live

import (
	"encoding/json"
	"sync"
	"time"
)

// The messages of the stream. docs/ui.md describes them; the fields that it describes stay.

// Hello represents the first message.
type Hello struct {
	Type      string    `json:"type"`
	Version   string    `json:"version"`
	Context   string    `json:"context"`
	Namespace string    `json:"namespace"`
	ReadOnly  bool      `json:"readOnly"`
	Now       time.Time `json:"now"`
}

// Unread lists the resources that the caller cannot read.
type Unread struct {
	Type string `json:"type"`
	// Text is empty if all is read.
	Text      string           `json:"text"`
	Resources []UnreadResource `json:"resources"`
}

// UnreadResource represents a resource that is not read everywhere.
type UnreadResource struct {
	Resource string `json:"resource"`
	// Namespace names the only namespace in which it is read; empty: in none.
	Namespace string `json:"namespace"`
}

// Beat reports that the connection holds, and whether the sent data is in step.
type Beat struct {
	Type   string    `json:"type"`
	Now    time.Time `json:"now"`
	Behind string    `json:"behind"`
}

// Pool represents a pool with its usage.
type Pool struct {
	ID        string `json:"id"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Known is false for a pool that is only mentioned: it does not exist, or cannot be read.
	// Then only the fields above and its family are set.
	Known  bool   `json:"known"`
	Domain string `json:"domain"`
	Family int    `json:"family"`
	CIDR   string `json:"cidr"`
	// First and Last are the first and the last address of a pool that occupies ranges of its CIDR;
	// empty for any other pool.
	First         string            `json:"first"`
	Last          string            `json:"last"`
	Parent        string            `json:"parent"`
	Phase         string            `json:"phase"`
	Message       string            `json:"message"`
	Classes       []string          `json:"classes"`
	Visibility    string            `json:"visibility"`
	Project       string            `json:"project"`
	Strategy      string            `json:"strategy"`
	ReuseDelay    string            `json:"reuseDelay"`
	OnExhaustion  string            `json:"onExhaustion"`
	HostAddresses bool              `json:"hostAddresses"`
	MinLength     int               `json:"minLength"`
	MaxLength     int               `json:"maxLength"`
	Labels        map[string]string `json:"labels"`
	Usage         *Usage            `json:"usage"`
	UsageFrom     string            `json:"usageFrom"`
	Withheld      []Withheld        `json:"withheld"`
	Limits        *Limits           `json:"limits"`
}

// Usage represents the usage of a pool's addresses: see register.Usage. Counts are decimal
// strings, empty if one is not known.
type Usage struct {
	Total       string `json:"total"`
	Free        string `json:"free"`
	Withheld    string `json:"withheld"`
	Held        string `json:"held"`
	Carved      string `json:"carved"`
	Retained    string `json:"retained"`
	Cooling     string `json:"cooling"`
	Drained     string `json:"drained"`
	Used        string `json:"used"`
	Blocks      int    `json:"blocks"`
	LargestFree int    `json:"largestFree"`
}

// Withheld represents a run of addresses that is never handed out.
type Withheld struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Reason string `json:"reason"`
}

// Limits holds the limits of one project in a pool.
type Limits struct {
	// Addresses is a decimal string; empty: no limit.
	Addresses string `json:"addresses"`
	// Blocks is nil if there is no limit.
	Blocks *int64 `json:"blocks"`
}

// Block represents a held block.
type Block struct {
	ID           string `json:"id"`
	Pool         string `json:"pool"`
	Domain       string `json:"domain"`
	CIDR         string `json:"cidr"`
	State        string `json:"state"`
	Child        string `json:"child"`
	Drained      bool   `json:"drained"`
	Terminating  bool   `json:"terminating"`
	Holder       Object `json:"holder"`
	Allocation   string `json:"allocation"`
	Cluster      string `json:"cluster"`
	Project      string `json:"project"`
	Class        string `json:"class"`
	RequestedBy  string `json:"requestedBy"`
	Since        string `json:"since"`
	ReleaseAfter string `json:"releaseAfter"`
}

// Object names an object.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Waiting represents a claim that has no block.
type Waiting struct {
	ID        string `json:"id"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Family    int    `json:"family"`
	// CIDR is empty unless the claim asks for exactly that block.
	CIDR string `json:"cidr"`
	// Length is -1 if the claim asks for none.
	Length  int      `json:"length"`
	Pools   []string `json:"pools"`
	Cluster string   `json:"cluster"`
	Class   string   `json:"class"`
	Reason  string   `json:"reason"`
	Message string   `json:"message"`
	Since   string   `json:"since"`
}

// Gone names the objects that do not exist any more.
type Gone struct {
	Type   string   `json:"type"`
	Pools  []string `json:"pools,omitempty"`
	Blocks []string `json:"blocks,omitempty"`
	Claims []string `json:"claims,omitempty"`
}

// mostBlocks bounds the blocks of one message.
const mostBlocks = 2000

type (
	poolsMessage struct {
		Type  string `json:"type"`
		Pools []Pool `json:"pools"`
	}
	blocksMessage struct {
		Type   string  `json:"type"`
		Blocks []Block `json:"blocks"`
	}
	waitingMessage struct {
		Type   string    `json:"type"`
		Claims []Waiting `json:"claims"`
	}
)

// Line returns a message as a line of the stream.
func Line(message any) ([]byte, error) {
	text, err := json.Marshal(message)
	return append(text, '\n'), err
}

// PoolsLine returns the message of some pools.
func PoolsLine(pools []Pool) ([]byte, error) { return Line(poolsMessage{"pools", list(pools)}) }

// BlocksLine returns the message of some blocks, at most 2,000.
func BlocksLine(blocks []Block) ([]byte, error) { return Line(blocksMessage{"blocks", list(blocks)}) }

// WaitingLine returns the message of some claims.
func WaitingLine(claims []Waiting) ([]byte, error) {
	return Line(waitingMessage{"waiting", list(claims)})
}

// list returns a list that JSON writes as a list even if it is empty: null means none.
func list[T any](all []T) []T { return append([]T{}, all...) }

// Change holds the changes of one time. The subscribers share it.
type Change struct {
	unread *Unread
	pools  []Pool
	blocks []Block
	claims []Waiting
	gone   Gone

	once  sync.Once
	lines [][]byte
	err   error
}

func (c *Change) isEmpty() bool {
	return c.unread == nil && len(c.pools)+len(c.blocks)+len(c.claims)+c.gone.size() == 0
}

func (g *Gone) size() int { return len(g.Pools) + len(g.Blocks) + len(g.Claims) }

// size returns the weight of a change in the queue of a subscriber.
func (c *Change) size() int { return 1 + len(c.pools) + len(c.blocks) + len(c.claims) + c.gone.size() }

// Lines returns the messages, which are written once for all subscribers.
func (c *Change) Lines() ([][]byte, error) {
	c.once.Do(func() {
		if c.unread != nil {
			c.add(Line(c.unread))
		}
		if len(c.pools) > 0 {
			c.add(PoolsLine(c.pools))
		}
		for from := 0; from < len(c.blocks); from += mostBlocks {
			c.add(BlocksLine(c.blocks[from:min(from+mostBlocks, len(c.blocks))]))
		}
		if len(c.claims) > 0 {
			c.add(WaitingLine(c.claims))
		}
		if c.gone.size() > 0 {
			c.gone.Type = "gone"
			c.add(Line(&c.gone))
		}
	})
	return c.lines, c.err
}

func (c *Change) add(line []byte, err error) {
	if err != nil {
		c.err = err
		return
	}
	c.lines = append(c.lines, line)
}
