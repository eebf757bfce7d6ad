/* The control daemon's servers, and the commands that it answers. */
#ifndef SODA_MPS_DAEMON_H
#define SODA_MPS_DAEMON_H

#include "mps.h"

extern int daemon_log, daemon_multiuser, daemon_quitting;

struct server {
    pid_t pid;
    uid_t uid;
    int stopping; /* takes no new clients */
    char socket[32];
};

/* The running server that clients of this user join, or NULL. */
struct server *servers_of(uid_t uid);
struct server *servers_by_pid(pid_t pid);
int servers_any(void);

/* NULL where another user's runs, or where it cannot be started. */
struct server *servers_start(uid_t uid);

/* No new clients; they end with their last one. */
void servers_stop_when_idle(void);

/* Forget those that have ended. */
void servers_reap(void);
void servers_kill(void);

/* Ask a server. Returns what it said, at most size - 1 bytes; empty where it does not answer. */
const char *servers_ask(const struct server *server, const char *question, char *answer, size_t size);

/* Whether a `quit -t` has waited long enough. */
int servers_late(void);

/* Answer one command; 1 where the connection is to stay open. */
int command_answer(int fd, const char *line);

/* Visit all servers: the first from at on, or NULL. */
struct server *servers_next(unsigned *at);

void servers_quit(double within_s); /* negative: wait for ever */

#endif
