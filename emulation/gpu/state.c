#include "state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_DIR "/run/soda-gpus"
#define MAGIC "soda-gpu 2"

static char own_model[32] = "-";
static pid_t own_server;

void gpu_state_dir(char *path, size_t size)
{
    const char *dir = getenv("SODA_GPU_STATE");
    const char *node = getenv("SLURMD_NODENAME");
    if (dir && *dir) {
        snprintf(path, size, "%s", dir);
        return;
    }
    if (node && *node && !strchr(node, '/') && *node != '.') {
        snprintf(path, size, "%s/%s", DEFAULT_DIR, node);
        if (access(path, X_OK) == 0)
            return;
    }
    snprintf(path, size, "%s", DEFAULT_DIR);
}

int gpu_state_make_dir(void)
{
    char dir[PATH_MAX];
    gpu_state_dir(dir, sizeof dir);
    if (mkdir(dir, 0777) == 0)
        return chmod(dir, 01777); /* mkdir obeys the umask */
    return errno == EEXIST ? 0 : -1;
}

/* Start time in clock ticks, and the owner, of a live process; 0 if it is gone or a zombie (which holds no GPU). */
static unsigned long long process_start(pid_t pid, uid_t *owner)
{
    char path[64], text[1024];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, text, sizeof text - 1);
    int statted = fstat(fd, &st);
    close(fd);
    if (got <= 0 || statted != 0)
        return 0;
    text[got] = '\0';
    char state = 0;
    unsigned long long start = 0;
    char *after = strrchr(text, ')'); /* the command's name may hold anything, a ')' too */
    if (!after || sscanf(after + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                         &state, &start) != 2)
        return 0;
    if (owner)
        *owner = st.st_uid;
    return state == 'Z' || state == 'X' ? 0 : start;
}

void gpu_state_identify(const char *model, pid_t server)
{
    snprintf(own_model, sizeof own_model, "%s", model);
    own_server = server;
}

int gpu_state_write(const struct gpu_use *uses, unsigned count)
{
    char dir[PATH_MAX - 32], path[PATH_MAX], fresh[PATH_MAX], text[192 + GPU_MAX * 96];
    gpu_state_dir(dir, sizeof dir);
    snprintf(path, sizeof path, "%s/%d", dir, (int)getpid());
    snprintf(fresh, sizeof fresh, "%s/.%d", dir, (int)getpid());
    int used = snprintf(text, sizeof text, MAGIC " %llu %d %s\n", process_start(getpid(), NULL),
                        (int)own_server, own_model);
    for (unsigned i = 0; i < count && i < GPU_MAX; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%u %" PRIu64 " %u %u %u %u\n", uses[i].minor,
                         uses[i].memory_mib, uses[i].util_pct, uses[i].demand_pct, uses[i].tx_kib_s, uses[i].rx_kib_s);
    unlink(fresh);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return -1;
    int whole = write(fd, text, (size_t)used) == used;
    int kept = fchmod(fd, 0644) == 0; /* a job's umask may hide it from the agent of another user */
    close(fd);
    if (whole && kept && rename(fresh, path) == 0)
        return 0;
    unlink(fresh);
    return -1;
}

/* Process id of a state file's name, or 0. */
static pid_t name_pid(const char *name)
{
    char *end;
    long pid = strtol(name, &end, 10);
    return *name >= '1' && *name <= '9' && *end == '\0' && pid <= INT_MAX ? (pid_t)pid : 0;
}

/* Append one file's uses, if its process still lives; returns 0 where the file is stale. */
static int read_file(int dir_fd, const char *name, struct gpu_holder *holders, unsigned max, unsigned *count)
{
    struct stat st;
    uid_t owner = 0;
    unsigned long long start = 0;
    pid_t pid = name_pid(name);
    int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return 1;
    FILE *file = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? fdopen(fd, "r") : NULL;
    if (!file) {
        close(fd);
        return 1;
    }
    struct gpu_holder found = {.pid = pid};
    int server = 0;
    int live = fscanf(file, MAGIC " %llu %d %31s", &start, &server, found.model) == 3 && start &&
               process_start(pid, &owner) == start && (st.st_uid == owner || st.st_uid == 0);
    struct gpu_use use;
    found.server = server;
    while (live && *count < max && fscanf(file, "%u %" SCNu64 " %u %u %u %u", &use.minor, &use.memory_mib, &use.util_pct,
                                          &use.demand_pct, &use.tx_kib_s, &use.rx_kib_s) == 6)
        found.use = use, holders[(*count)++] = found;
    fclose(file);
    return live;
}

static int by_pid(const void *a, const void *b)
{
    const struct gpu_holder *x = a, *y = b;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

/* Read every file; where clean, remove this user's stale ones. */
static unsigned scan(struct gpu_holder *holders, unsigned max, int clean)
{
    char path[PATH_MAX];
    unsigned count = 0;
    gpu_state_dir(path, sizeof path);
    DIR *dir = opendir(path);
    if (!dir)
        return 0;
    for (struct dirent *entry; (entry = readdir(dir));)
        if (name_pid(entry->d_name) && !read_file(dirfd(dir), entry->d_name, holders, max, &count) && clean)
            unlinkat(dirfd(dir), entry->d_name, 0); /* the sticky bit keeps other users' files safe */
    closedir(dir);
    qsort(holders, count, sizeof *holders, by_pid);
    return count;
}

unsigned gpu_state_read(struct gpu_holder *holders, unsigned max)
{
    return scan(holders, max, 0);
}

void gpu_state_clear(void)
{
    static struct gpu_holder holders[GPU_HOLDERS_MAX];
    char dir[PATH_MAX - 32], path[PATH_MAX];
    gpu_state_dir(dir, sizeof dir);
    snprintf(path, sizeof path, "%s/%d", dir, (int)getpid());
    unlink(path);
    scan(holders, GPU_HOLDERS_MAX, 1);
}

/* 0, or the errno that keeps this use out. */
static int refusal(const struct gpu_use *use, const struct gpu_node *node, const struct gpu_holder *holders, unsigned all)
{
    uint64_t memory_mib = use->memory_mib + GPU_RESERVED_MIB;
    if (node->mode == GPU_PROHIBITED)
        return EBUSY;
    for (unsigned i = 0; i < all; i++) {
        const struct gpu_holder *other = &holders[i];
        if (other->use.minor != use->minor || other->pid == getpid())
            continue;
        memory_mib += other->use.memory_mib;
        int joined = own_server && (other->server == own_server || other->pid == own_server);
        if (node->mode == GPU_EXCLUSIVE_PROCESS && !joined)
            return EBUSY;
    }
    return memory_mib > node->memory_mib ? ENOMEM : 0;
}

int gpu_state_claim(const struct gpu_use *uses, unsigned count)
{
    static struct gpu_holder holders[GPU_HOLDERS_MAX];
    struct gpu_node node;
    char dir[PATH_MAX - 32];
    int why = 0;
    gpu_state_dir(dir, sizeof dir);
    int lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0 || flock(lock, LOCK_EX) != 0) {
        if (lock >= 0)
            close(lock);
        return -1;
    }
    gpu_node_read(&node);
    unsigned all = gpu_state_read(holders, GPU_HOLDERS_MAX);
    for (unsigned i = 0; i < count && !why; i++)
        why = refusal(&uses[i], &node, holders, all);
    int written = why ? -2 : gpu_state_write(uses, count);
    close(lock);
    if (why)
        errno = why;
    return written;
}

static unsigned parse_minors(const char *list, unsigned minors[GPU_MAX])
{
    unsigned count = 0;
    while (*list && count < GPU_MAX) {
        char *end;
        unsigned long minor = strtoul(list, &end, 10);
        if (end == list)
            break;
        minors[count++] = (unsigned)minor;
        list = *end == ',' ? end + 1 : end;
    }
    return count;
}

static uint32_t parse_mask(const char *list)
{
    unsigned minors[GPU_MAX], count = parse_minors(list, minors);
    uint32_t mask = 0;
    for (unsigned i = 0; i < count; i++)
        if (minors[i] < 32)
            mask |= UINT32_C(1) << minors[i];
    return mask;
}

/* Where a devices cgroup denies a GPU, access() says so without waking a driver. */
static void scan_devices(struct gpu_node *node)
{
    for (unsigned minor = 0; minor < GPU_MAX; minor++) {
        char path[64];
        struct stat st;
        snprintf(path, sizeof path, "/dev/nvidia%u", minor);
        if (stat(path, &st) == 0 && S_ISCHR(st.st_mode) && access(path, R_OK | W_OK) == 0)
            node->minor[node->count++] = minor;
    }
}

void gpu_node_read(struct gpu_node *node)
{
    char dir[PATH_MAX - 32], path[PATH_MAX], line[256], value[192];
    int listed = 0;
    *node = (struct gpu_node){.name = "NVIDIA A100-SXM4-40GB", .memory_mib = 40960, .power_limit_mw = 400000,
                              .capability = {8, 0}};
    gpu_state_dir(dir, sizeof dir);
    snprintf(path, sizeof path, "%s/gpus.conf", dir);
    struct stat st;
    FILE *file = fopen(path, "re");
    /* The directory is open to all users, the configuration is not: only root's or one's own is believed. */
    if (file && (fstat(fileno(file), &st) != 0 || (st.st_uid != 0 && st.st_uid != geteuid()))) {
        fclose(file);
        file = NULL;
    }
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "devices=%191[0-9,]", value) == 1) {
            node->count = parse_minors(value, node->minor);
            listed = 1;
        } else if (sscanf(line, "mig=%191[0-9,]", value) == 1) {
            node->mig = parse_mask(value);
        } else if (sscanf(line, "name=%95[^\n]", value) == 1) {
            snprintf(node->name, sizeof node->name, "%.95s", value);
        } else if (sscanf(line, "mps_samples=%31s", value) == 1) {
            node->server_samples = strcmp(value, "server") == 0;
        } else if (sscanf(line, "compute_mode=%31s", value) == 1) {
            node->mode = strcmp(value, "prohibited") == 0          ? GPU_PROHIBITED
                         : strcmp(value, "exclusive_process") == 0 ? GPU_EXCLUSIVE_PROCESS
                                                                   : GPU_DEFAULT;
        } else {
            sscanf(line, "capability=%d.%d", &node->capability[0], &node->capability[1]);
            sscanf(line, "memory_mib=%" SCNu64, &node->memory_mib);
            sscanf(line, "power_limit_mw=%u", &node->power_limit_mw);
        }
    }
    if (file)
        fclose(file);
    if (!listed)
        scan_devices(node);
}
