/* The common chunks of sessions: received, recognized and sent on without a turn of Python.
 *
 * Owns: waiting for the sockets of all sessions (`relay_run`), the walk over message headers for what needs no more than
 * that, the account of what PostgreSQL owes meanwhile, and the messages that were settled to be its own (settled.py).
 * Whatever else comes is left in a hub's `buffer` for Python, and nothing of it has been sent.
 * Must not know: what sessions are; relay.py says which ones may be relayed here (`live`), and takes the account back.
 * No Python.h: any C compiler makes it. A hub, its pairs and their settled messages are of one thread.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define SIZE 262144 /* what gathers in a socket at most: 208 KiB where Linux has its defaults */
#define LONGEST 1024 /* of a settled message, as settled.LONGEST */
#define SLOTS 8192   /* a power of two, twice settled.KEPT at least */
#define OWED 64      /* ReadyForQuery owed at once; a client that sends further ahead is Python's */
#define MANY 4096    /* as backend.MANY */
#define LONG 65536   /* as backend.LONG */
#define EVENTS 64
#define TURN_NS 500000 /* after which whatever else the event loop has is served */
#define BUSY 4         /* chunks in so long a time, of one session: what comes next is waited for here */

/* What `relay_run` and `relay_again` return, with the bytes that lie in `buffer` << 8. NOTHING: for now. RELAYED:
 * it was. ENDED: the connection, whatever ended it. UNKNOWN: Python is to look at a chunk. TEXT: it is to look at the
 * message `at` a place alone, and say so by `relay_again`. REST: what is left in the buffer could not be sent yet. */
enum { NOTHING, RELAYED, ENDED, UNKNOWN, TEXT, REST };
enum { CLIENT, BACKEND };

struct pair {
  int32_t sockets[2];
  int32_t live;    /* may be relayed here */
  int32_t texts;   /* so may texts that are settled */
  struct settled *settled;
  /* The account, as flight.Flight has it; `bound` as inbound.Inbound does. */
  int64_t open, answered, status, bound;
  int64_t skip;     /* bytes of a message of PostgreSQL's that are still to come */
  int64_t streamed; /* bytes of an answer since it last gathered */
  int64_t received, relayed, rounds; /* since they were last counted */
  int64_t owed;
  unsigned char kinds[OWED]; /* of what was owed, oldest first, from `first` */
  int64_t first;
  int64_t heads; /* bytes of PostgreSQL's next header that have come and gone already, fewer than 5 */
  unsigned char head[8];
  /* A long answer gathers: its socket is not looked at until the timer says so. */
  int32_t gathers;
  struct pair *next;
};

/* What is watched. `told`: what the last call was about, and what it left. The two timers are among the descriptors, and
 * have no pair. */
struct told {
  struct pair *pair;
  int64_t side, at;
  unsigned char buffer[SIZE];
};
struct hub {
  struct told told;
  int32_t epoll, timer, turn;
  struct pair *gathering;
  /* What was taken since a time that is looked at when it was TURN_NS at least: how much, and whether of one session. */
  int64_t since, chunks;
  const struct pair *only;
  int32_t several;
  int32_t alone; /* one session alone was busy in the time before */
};

/* How long a long answer gathers in its socket, 0 for not at all: PostgreSQL would wait if it took longer to read than to fill. */
int64_t relay_gather_ns = 400000;

static int64_t result(int kind, int64_t n) { return n << 8 | kind; }

static int64_t length_of(const unsigned char *header) {
  const unsigned char *b = header + 1;
  return (int64_t)((uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3]);
}

/* Bytes received, or -1 where there are none now, or 0 at the end of the connection. */
static int64_t receive(int from, unsigned char *buffer) {
  ssize_t n = recv(from, buffer, SIZE, 0);
  if (n >= 0) return n;
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? -1 : 0;
}

/* Send what was received. What does not go, for whatever reason, is left to Python's transport. */
static int64_t pass_on(int to, unsigned char *buffer, int kind, int64_t n) {
  ssize_t sent = send(to, buffer, (size_t)n, MSG_NOSIGNAL);
  if (sent == n) return result(kind, n);
  if (sent < 0) sent = 0;
  memmove(buffer, buffer + sent, (size_t)(n - sent));
  return result(REST, n - sent);
}

/* Settled messages: a table with open addressing, which is forgotten as a whole and never full. */

struct slot {
  uint64_t hash;
  unsigned char *bytes;
  uint32_t length;
};
struct settled {
  struct slot slots[SLOTS];
  uint32_t count;
};

static uint64_t hash_of(const unsigned char *bytes, int64_t n) {
  uint64_t h = 0x9E3779B97F4A7C15u ^ (uint64_t)n, word;
  for (; n >= 8; n -= 8, bytes += 8) {
    memcpy(&word, bytes, 8);
    h = (h ^ word) * 0xFF51AFD7ED558CCDu;
    h ^= h >> 32;
  }
  word = 0;
  memcpy(&word, bytes, (size_t)n);
  h = (h ^ word) * 0xC4CEB9FE1A85EC53u;
  return h ^ h >> 29;
}

static struct slot *find(struct settled *set, const unsigned char *bytes, int64_t n) {
  uint64_t hash = hash_of(bytes, n);
  for (uint64_t i = hash;; i++) {
    struct slot *slot = &set->slots[i & (SLOTS - 1)];
    if (slot->bytes == NULL) {
      slot->hash = hash;
      return slot;
    }
    if (slot->hash == hash && slot->length == n && memcmp(slot->bytes, bytes, (size_t)n) == 0) return slot;
  }
}

struct settled *relay_new_settled(void) { return calloc(1, sizeof(struct settled)); }

void relay_forget(struct settled *set) {
  for (int i = 0; i < SLOTS; i++) free(set->slots[i].bytes);
  memset(set, 0, sizeof(struct settled));
}

void relay_free_settled(struct settled *set) {
  relay_forget(set);
  free(set);
}

void relay_settle(struct settled *set, const unsigned char *bytes, int64_t n) {
  if (n > LONGEST || set->count >= SLOTS / 2) return;
  struct slot *slot = find(set, bytes, n);
  if (slot->bytes != NULL || (slot->bytes = malloc((size_t)n)) == NULL) return;
  memcpy(slot->bytes, bytes, (size_t)n);
  slot->length = (uint32_t)n;
  set->count++;
}

/* As settled.query_key: a zero for each digit, and no key for a text with values in quotes. */
static int is_settled_query(struct settled *set, const unsigned char *buffer, int64_t n) {
  unsigned char key[LONGEST];
  if (n > LONGEST) return 0;
  for (int64_t i = 0; i < n; i++) {
    unsigned char c = buffer[i];
    if (c == '\'') return 0;
    key[i] = c >= '1' && c <= '9' ? '0' : c;
  }
  return find(set, key, n)->bytes != NULL;
}

/* From a client. `trusted`: the place of the last text that Python has looked at. */
static int64_t request(struct told *told, int64_t n, int64_t trusted) {
  struct pair *pair = told->pair;
  unsigned char *buffer = told->buffer;
  int64_t pos = 0, length, opened = 0, bound = pair->bound;
  unsigned char ends = 0;
  for (; n - pos >= 5; pos += length + 1) {
    length = length_of(buffer + pos);
    if (length < 4 || length > n - pos - 1) return result(UNKNOWN, n);
    switch (buffer[pos]) {
      case 'P':
        if (!pair->texts) return result(UNKNOWN, n);
        told->at = pos;
        if (pos > trusted && (length + 1 > LONGEST || find(pair->settled, buffer + pos, length + 1)->bytes == NULL))
          return result(TEXT, n);
        opened++;
        continue;
      case 'B': case 'E':
        if (length > 4 && buffer[pos + 5] == 0) { /* the unnamed portal */
          if (buffer[pos] == 'E' && !bound) return result(UNKNOWN, n);
          bound = 1;
        }
        /* fall through */
      case 'D': case 'C':
        opened++;
        continue;
      case 'H':
        if (length != 4) return result(UNKNOWN, n);
        continue;
      case 'S':
        break;
      case 'Q':
        if (pos || !pair->texts || pair->open) return result(UNKNOWN, n);
        told->at = 0;
        if (pos > trusted && length + 1 == n && !is_settled_query(pair->settled, buffer, n)) return result(TEXT, n);
        break;
      default:
        return result(UNKNOWN, n);
    }
    ends = buffer[pos];
    pos += length + 1;
    break;
  }
  if (pos != n || (ends && pair->owed == OWED)) return result(UNKNOWN, n);
  pair->received += n;
  pair->open += opened;
  pair->bound = bound;
  if (ends) {
    pair->kinds[(pair->first + pair->owed++) % OWED] = ends;
    pair->open = pair->bound = 0;
  }
  return pass_on(pair->sockets[BACKEND], buffer, RELAYED, n);
}

static void *place(struct pair *pair, int side) { return (void *)((uintptr_t)pair | (uintptr_t)side); }

/* Ask for what comes from a pair's PostgreSQL, or not. */
static int listen_to(const struct hub *hub, struct pair *pair, uint32_t events) {
  struct epoll_event event = {.events = events, .data.ptr = place(pair, BACKEND)};
  return epoll_ctl(hub->epoll, EPOLL_CTL_MOD, pair->sockets[BACKEND], &event) == 0;
}

static int ring(int timer, int64_t ns) {
  struct itimerspec at = {.it_value = {.tv_nsec = ns}};
  return timerfd_settime(timer, 0, &at, NULL) == 0;
}

/* Whether it had rung; it does not from now on. */
static int rang(int timer) {
  uint64_t times;
  return read(timer, &times, sizeof times) > 0;
}

static void gather(struct hub *hub, struct pair *pair) {
  if (pair->gathers || relay_gather_ns == 0 || !listen_to(hub, pair, 0)) return;
  if (hub->gathering == NULL) ring(hub->timer, relay_gather_ns);
  pair->gathers = 1;
  pair->next = hub->gathering;
  hub->gathering = pair;
}

static void gathered(struct hub *hub) {
  if (!rang(hub->timer)) return;
  for (struct pair *pair = hub->gathering; pair != NULL; pair = pair->next) {
    pair->gathers = 0;
    listen_to(hub, pair, EPOLLIN);
  }
  hub->gathering = NULL;
}

/* From PostgreSQL: rows, ends of answers, and a ReadyForQuery if it is the last. */
static int64_t answer(struct hub *hub, struct pair *pair, int64_t n) {
  unsigned char *buffer = hub->told.buffer;
  int64_t pos = pair->heads ? -pair->heads : pair->skip, length, answered = 0;
  int ready = 0, much = 0;
  unsigned char begun[8]; /* a header, the first bytes of which came before */
  memcpy(begun, pair->head, sizeof begun);
  for (int64_t i = pair->heads; pair->heads && i < 5 && i - pair->heads < n; i++) begun[i] = buffer[i - pair->heads];
  for (; n - pos >= 5; pos += length + 1) {
    const unsigned char *header = pos < 0 ? begun : buffer + pos;
    length = length_of(header);
    if (length < 4) return result(UNKNOWN, n);
    switch (*header) {
      case 'D': case 'd':
        continue;
      case '1': case '2': case '3': case 'C': case 'I': case 's': case 'n': case 'T':
        answered++;
        continue;
      case 'Z':
        if (length != 5 || pos + 6 != n) return result(UNKNOWN, n);
        ready = 1;
        continue;
      default:
        return result(UNKNOWN, n);
    }
  }
  pair->heads = pos < n ? n - pos : 0;
  if (pos < n) memcpy(pair->head, pos < 0 ? begun : buffer + pos, (size_t)pair->heads);
  pair->skip = pos < n ? 0 : pos - n;
  pair->relayed += n;
  if (ready) {
    pair->status = buffer[n - 1];
    pair->answered = pair->streamed = 0;
    pair->rounds++;
    if (pair->owed) {
      pair->owed--;
      pair->first = (pair->first + 1) % OWED;
    }
  } else {
    pair->answered += answered;
    if (n > MANY && (pair->streamed += n) > LONG) {
      pair->streamed = LONG; /* from here on each chunk gathers, until the answer ends */
      much = 1;
    }
  }
  int64_t passed = pass_on(pair->sockets[CLIENT], buffer, RELAYED, n);
  if (much && (passed & 255) == RELAYED) gather(hub, pair);
  return passed;
}

/* Which sockets are watched. */

void relay_close(struct hub *hub) {
  if (hub->epoll >= 0) close(hub->epoll);
  if (hub->timer >= 0) close(hub->timer);
  if (hub->turn >= 0) close(hub->turn);
  free(hub);
}

/* The place of a timer: no pair is there, whatever its side. */
enum { GATHERED = 2, TURNED = 4 };

static int timer_of(const struct hub *hub, uint64_t place) {
  struct epoll_event event = {.events = EPOLLIN, .data.u64 = place};
  int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  if (timer < 0 || epoll_ctl(hub->epoll, EPOLL_CTL_ADD, timer, &event) == 0) return timer;
  close(timer);
  return -1;
}

/* NULL: no descriptor is left. */
struct hub *relay_open(void) {
  struct hub *hub = calloc(1, sizeof(struct hub));
  if (hub == NULL) return NULL;
  hub->timer = hub->turn = -1;
  hub->epoll = epoll_create1(EPOLL_CLOEXEC);
  if (hub->epoll >= 0) hub->timer = timer_of(hub, GATHERED), hub->turn = timer_of(hub, TURNED);
  if (hub->timer >= 0 && hub->turn >= 0) return hub;
  relay_close(hub);
  return NULL;
}

/* The descriptor that says that some session has something. */
int32_t relay_descriptor(const struct hub *hub) { return hub->epoll; }

int32_t relay_watch(const struct hub *hub, struct pair *pair, int side) {
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = place(pair, side)};
  return epoll_ctl(hub->epoll, EPOLL_CTL_ADD, pair->sockets[side], &event) == 0;
}

void relay_leave(struct hub *hub, struct pair *pair, int side) {
  epoll_ctl(hub->epoll, EPOLL_CTL_DEL, pair->sockets[side], NULL);
  if (side != BACKEND || !pair->gathers) return;
  struct pair **at = &hub->gathering;
  while (*at != pair) at = &(*at)->next;
  *at = pair->next;
  pair->gathers = 0;
  if (hub->gathering == NULL) ring(hub->timer, 0);
}

struct pair *relay_new_pair(int client, int backend) {
  struct pair *pair = calloc(1, sizeof(struct pair));
  if (pair != NULL) pair->sockets[CLIENT] = client, pair->sockets[BACKEND] = backend;
  return pair;
}

void relay_free_pair(struct pair *pair) { free(pair); }

static int64_t take(struct hub *hub, struct pair *pair, int side) {
  int64_t n = receive(pair->sockets[side], hub->told.buffer);
  hub->told.pair = pair;
  hub->told.side = side;
  if (n <= 0) return n == 0 ? ENDED : NOTHING;
  if (!pair->live) return result(UNKNOWN, n);
  return side == CLIENT ? request(&hub->told, n, -1) : answer(hub, pair, n);
}

/* After TEXT: the text is PostgreSQL's. */
int64_t relay_again(struct hub *hub, int64_t n) { return request(&hub->told, n, hub->told.at); }

static int64_t now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec * 1000000000LL + at.tv_nsec;
}

/* Whether one session alone is busy. */
static int is_alone(struct hub *hub, int64_t at) {
  int64_t passed = at - hub->since;
  if (passed < TURN_NS) return hub->alone && !hub->several;
  hub->alone = !hub->several && hub->chunks * TURN_NS >= BUSY * passed;
  hub->since = at;
  hub->chunks = hub->several = 0;
  hub->only = NULL;
  return hub->alone;
}

/* Relay what there is, until there is no more or Python is wanted. `patient`: look again for what came meanwhile, since a
 * turn of the event loop costs more than to relay it. While one session alone is busy, what comes next is even waited for,
 * until the turn ends: by one timer for all of it, as one for each wait costs as much as it saves. With several, more has
 * come together after a turn of the event loop than after a wait. */
int64_t relay_run(struct hub *hub, int patient) {
  struct epoll_event events[EVENTS];
  int64_t end = patient ? now() + TURN_NS : 0, taken = NOTHING;
  int waits = patient && is_alone(hub, end - TURN_NS) && ring(hub->turn, TURN_NS);
  int found = epoll_wait(hub->epoll, events, EVENTS, 0);
  do {
    for (int i = 0; i < found && (taken & 255) <= RELAYED; i++) {
      uintptr_t at = (uintptr_t)events[i].data.ptr;
      if (at == GATHERED) {
        gathered(hub);
      } else if (at == TURNED) {
        if (rang(hub->turn)) patient = 0; /* the sockets that were found with it are served still */
      } else {
        struct pair *pair = (struct pair *)(at & ~(uintptr_t)1);
        if (hub->only == NULL) hub->only = pair;
        hub->several |= pair != hub->only;
        hub->chunks++;
        taken = take(hub, pair, (int)(at & 1));
      }
    }
    if ((taken & 255) > RELAYED || !patient || now() >= end) break;
    found = epoll_wait(hub->epoll, events, EVENTS, waits && !hub->several ? -1 : 0);
  } while (found > 0);
  return (taken & 255) > RELAYED ? taken : NOTHING;
}
