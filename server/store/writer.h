// server/store/writer.h: the writer thread and the answering thread of the store.
//
// Commands wait in a bounded queue. The writer takes all waiting ones (up to kGroupMax), runs each
// inside a savepoint of one transaction, and commits: under load, one fsync is shared by many. A
// command that fails is rolled back by itself. The next group gathers while a group is being
// committed, so grouping adds no delay. A second thread calls the observers and then the commands'
// answers, in commit order.
//
// When a job ends, its dependents must be settled (dependencies.h). Each transaction settles a
// bounded number of them after its commands. While some are left, the writer continues even without
// commands. The rows of `dependencies` record the rest, so an end of the daemon in between loses
// nothing.
//
// When a write fails:
//   disk full   The writer deletes the reserve file and tries the essential commands again, which
//               are those that end something. It refuses all others until there is room for the
//               reserve again.
//   locked      If another program has locked the store for longer than the busy timeout, the
//               writer refuses the group.
//   otherwise   After an I/O error, a failed fsync or damage the writer never trusts the connection
//               again. It refuses the group and all later commands, and health() returns the error.
//               Readers continue.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "server/store/sqlite.h"
#include "server/store/store.h"
#include "server/store/store_files.h"
#include "src/base/mutex.h"

namespace trainyard::server {

/// The largest number of commands that are waiting, running or unanswered. Beyond it, new commands
/// are refused with STORE_BUSY.
inline constexpr size_t kCommandsMax = 8192;
/// The largest number of commands that share a commit. It bounds the time that the first of them
/// waits for the last.
inline constexpr size_t kGroupMax = 512;
/// The longest time that patient commands wait for another command.
inline constexpr int64_t kPatienceMs = 1000;
/// When the WAL has this many times StoreOptions::checkpoint_pages, the writer checkpoints even
/// under load.
inline constexpr int kCheckpointLoadFactor = 8;

/// The data that a running command may use.
struct WriteContext {
  Connection& db;
  int64_t now_us;                   // wall-clock time, the same for the whole group
  std::vector<JobChange>& changes;  // changes to report to the observers
  /// The `order` of each ended job that others still wait for. Commands only add to it. After the
  /// commands of each transaction the writer settles some of the waiting jobs (dependencies.h).
  std::vector<int64_t>& unsettled;
};

class Command {
 public:
  virtual ~Command() = default;
  /// Runs in a savepoint; returning false rolls it back. After a full disk it may be called again,
  /// and then only the last call counts.
  virtual bool run(WriteContext& context) = 0;
  /// Called once: without an error after the commit, or with the error.
  virtual void answer(const std::optional<Error>& error) = 0;
  bool essential = false;  // true: also runs when the disk is full, because it ends something
  // True: the command has a transaction of its own. If a savepoint changes pages that the
  // transaction changed before, SQLite adds them to a list that each statement walks. So two arrays
  // of ten thousand members took 40 s in one transaction and 0.5 s in two.
  bool large = false;
  // True: the command waits up to kPatienceMs for others, so that they share a commit.
  bool patient = false;
};

struct WriterOptions {
  std::filesystem::path reserve_path;
  int64_t reserve_bytes = 0;
  int32_t checkpoint_pages = 1000;
  std::function<void(bool full)> disk_full;  // StoreOptions::disk_full
};

class Writer {
 public:
  Writer(WriterOptions options, OpenStore store, const Clock& clock);
  /// Commits and answers the waiting commands, then checkpoints the WAL and closes the connection.
  ~Writer();

  void push(std::unique_ptr<Command> command);
  void observe(JobObserver observer);
  Status health() const;
  bool is_full() const { return full_; }

 private:
  using Group = std::vector<std::unique_ptr<Command>>;
  struct Answers {
    Group group;
    std::vector<std::optional<Error>> errors;  // one per command
    std::vector<JobChange> changes;
  };

  void run_writer();
  /// Waits until there is something to write, or until the store stops.
  void wait_for_commands(MutexLock& lock) TRAINYARD_REQUIRES(mu_);
  /// Takes the commands of the next transaction out of the queue.
  Group next_group() TRAINYARD_REQUIRES(mu_);
  void run_answerer();
  void write_group(Answers& answers);
  void write_transaction(Answers& answers, bool essential_only);
  /// Runs the command in a savepoint. Returns whether its changes are kept.
  bool run_command(Command& command, std::optional<Error>& error, WriteContext& context);
  void count_commit();
  void mark_commit();
  void fail_group(Answers& answers, const Error& error);
  void fail_group(Answers& answers, const SqliteError& e);
  void give_answers(Answers answers);
  void free_reserve();
  void keep_reserve();
  void checkpoint(int mode);

  const WriterOptions options_;
  const Clock& clock_;
  // After construction, this and the members up to full_ are used only by the writer thread.
  std::unique_ptr<Connection> db_;
  int64_t commit_;  // number of the newest commit
  CommitMark mark_;
  int64_t mark_synced_us_ = 0;      // steady clock
  std::vector<int64_t> unsettled_;  // ended jobs with unsettled dependents, as of the newest commit
  // False after a failure or while the disk is full: do not settle without commands.
  bool settles_ = true;
  int wal_pages_ = 0;               // pages in the WAL
  std::atomic<bool> full_ = false;  // the disk counts as full; others read it

  mutable Mutex mu_;
  CondVar wake_writer_;
  CondVar wake_answerer_;
  std::deque<std::unique_ptr<Command>> queue_ TRAINYARD_GUARDED_BY(mu_);
  size_t impatient_ TRAINYARD_GUARDED_BY(mu_) = 0;  // commands in queue_ that are not patient
  bool large_was_last_ TRAINYARD_GUARDED_BY(mu_) = false;
  std::deque<Answers> answers_ TRAINYARD_GUARDED_BY(mu_);
  size_t in_flight_ TRAINYARD_GUARDED_BY(mu_) = 0;
  bool stopping_ TRAINYARD_GUARDED_BY(mu_) = false;
  bool writer_done_ TRAINYARD_GUARDED_BY(mu_) = false;
  std::optional<Error> failed_ TRAINYARD_GUARDED_BY(mu_);
  // Copied before the observers are called.
  std::vector<JobObserver> observers_ TRAINYARD_GUARDED_BY(mu_);

  std::jthread writer_;
  std::jthread answerer_;
};

}  // namespace trainyard::server
