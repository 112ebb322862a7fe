package live

import (
	"encoding/json"
	"sync"
	"time"
)

// The messages of the stream. docs/ui.md describes them; what is there stays.

// Hello is the first one.
type Hello struct {
	Type      string    `json:"type"`
	Version   string    `json:"version"`
	Context   string    `json:"context"`
	Namespace string    `json:"namespace"`
	ReadOnly  bool      `json:"readOnly"`
	Now       time.Time `json:"now"`
}

// Unread says what the caller may not read.
type Unread struct {
	Type string `json:"type"`
	// Text is empty where all is read.
	Text      string           `json:"text"`
	Resources []UnreadResource `json:"resources"`
}

// UnreadResource is a resource that is not read everywhere.
type UnreadResource struct {
	Resource string `json:"resource"`
	// Namespace is the only one in which it is read; empty: in none.
	Namespace string `json:"namespace"`
}

// Beat says that the connection holds, and whether what was sent is in step.
type Beat struct {
	Type   string    `json:"type"`
	Now    time.Time `json:"now"`
	Behind string    `json:"behind"`
}

// Pool is a pool with what is used of it.
type Pool struct {
	ID        string `json:"id"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Known is false for a pool that is only mentioned: it does not exist, or may not be
	// read. Only what is above and its family are there then.
	Known         bool              `json:"known"`
	Domain        string            `json:"domain"`
	Family        int               `json:"family"`
	CIDR          string            `json:"cidr"`
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

// Usage is what a pool's addresses are used for: see register.Usage. Counts are decimal
// strings, empty where one is not known.
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

// Withheld is a run of addresses that is never handed out.
type Withheld struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Reason string `json:"reason"`
}

// Limits are what one project may hold of a pool.
type Limits struct {
	// Addresses is a decimal string; empty: no limit.
	Addresses string `json:"addresses"`
	// Blocks is nil where there is no limit.
	Blocks *int64 `json:"blocks"`
}

// Block is a block that is held.
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

// Waiting is a claim that has no block.
type Waiting struct {
	ID        string `json:"id"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Family    int    `json:"family"`
	// CIDR is empty unless exactly that block is asked for.
	CIDR string `json:"cidr"`
	// Length is -1 where none is asked for.
	Length  int      `json:"length"`
	Pools   []string `json:"pools"`
	Class   string   `json:"class"`
	Reason  string   `json:"reason"`
	Message string   `json:"message"`
	Since   string   `json:"since"`
}

// Gone names what is not there any more.
type Gone struct {
	Type   string   `json:"type"`
	Pools  []string `json:"pools,omitempty"`
	Blocks []string `json:"blocks,omitempty"`
	Claims []string `json:"claims,omitempty"`
}

// mostBlocks are in one message at most.
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

// Line is a message as a line of the stream.
func Line(message any) ([]byte, error) {
	text, err := json.Marshal(message)
	return append(text, '\n'), err
}

// PoolsLine is the message of some pools.
func PoolsLine(pools []Pool) ([]byte, error) { return Line(poolsMessage{"pools", list(pools)}) }

// BlocksLine is the message of some blocks, at most 2,000.
func BlocksLine(blocks []Block) ([]byte, error) { return Line(blocksMessage{"blocks", list(blocks)}) }

// WaitingLine is the message of some claims.
func WaitingLine(claims []Waiting) ([]byte, error) {
	return Line(waitingMessage{"waiting", list(claims)})
}

// list is a list, also where there is nothing in it: null is none.
func list[T any](all []T) []T { return append([]T{}, all...) }

// Change is what has changed at one time. It is shared by those who subscribe.
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

// size is how much a change counts in the queue of a subscriber.
func (c *Change) size() int { return 1 + len(c.pools) + len(c.blocks) + len(c.claims) + c.gone.size() }

// Lines are the messages, which are written once for all subscribers.
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
