// server/store/writer.h: the one thread that writes, and the one that answers.
//
// Commands wait in a bounded queue. The writer takes all waiting ones (up to kGroupMax), runs each
// inside a savepoint of one transaction, and commits: under load, one fsync is shared by many. A
// command that fails is rolled back by itself. While a group is being committed the next one
// gathers, so no delay is added. Answers, and before them the observers, run on a second thread in
// commit order.
//
// What the end of a job means for the jobs that wait for it is settled behind the commands of each
// transaction, a bounded number at a time; while some are left the writer goes on without commands.
// The rows say what is left, so an end of the daemon in between loses nothing.
//
// When a write fails:
//   disk full   the reserve file is freed and the commands that end things (essential) are tried
//               again; all others are refused until there is room for the reserve once more.
//   locked      by another program, longer than the busy timeout: the group is refused.
//   otherwise   (I/O error, failed fsync, damage) the connection is never trusted again: that group
//               and all later commands are refused, health() says so, readers go on.
#pragma once

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

/// Commands that are waiting, running or unanswered. Beyond it new ones are refused: STORE_BUSY.
inline constexpr size_t kCommandsMax = 8192;
/// Commands that share a commit. Bounds the time that the first of them waits for the last.
inline constexpr size_t kGroupMax = 512;
/// Times StoreOptions::checkpoint_pages at which a checkpoint no longer waits for an idle moment.
inline constexpr int kCheckpointLoadFactor = 8;

/// What a command may use while it runs.
struct WriteContext {
  Connection& db;
  int64_t now_us;                   // wall clock, one for the group
  std::vector<JobChange>& changes;  // for the observers
  /// Jobs by `order` that have ended and that others still wait for: a command only adds. After the
  /// commands, the writer settles some of the others in each transaction (dependencies.h).
  std::vector<int64_t>& unsettled;
};

class Command {
 public:
  virtual ~Command() = default;
  /// Runs in a savepoint; false rolls it back. May be called again after a full disk: the last call
  /// counts.
  virtual bool run(WriteContext& context) = 0;
  /// Called once: after the commit without an error, or with the error.
  virtual void answer(const std::optional<Error>& error) = 0;
  bool essential = false;  // ends something: allowed when the disk is full
  // Has a transaction of its own. SQLite keeps what a savepoint changes of earlier changes in a
  // list that each statement walks: two arrays of ten thousand in one transaction took 40 s, and
  // 0.5 s in two.
  bool large = false;
};

struct WriterOptions {
  std::filesystem::path reserve_path;
  int64_t reserve_bytes = 0;
  int32_t checkpoint_pages = 1000;
};

class Writer {
 public:
  Writer(WriterOptions options, OpenStore store, const Clock& clock);
  /// Commits and answers the waiting commands, then checkpoints the WAL and closes the connection.
  ~Writer();

  void push(std::unique_ptr<Command> command);
  void observe(JobObserver observer);
  Status health() const;

 private:
  using Group = std::vector<std::unique_ptr<Command>>;
  struct Answers {
    Group group;
    std::vector<std::optional<Error>> errors;  // one per command
    std::vector<JobChange> changes;
  };

  void run_writer();
  /// What waits and shares the next transaction.
  Group next_group() TRAINYARD_REQUIRES(mu_);
  void run_answerer();
  void write_group(Answers& answers);
  void write_transaction(Answers& answers, bool essential_only);
  /// Whether the command's changes are kept.
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
  std::unique_ptr<Connection> db_;  // the writer thread's, after construction, as the next three
  int64_t commit_;                  // the newest commit's number
  CommitMark mark_;
  int64_t mark_synced_us_ = 0;      // steady
  std::vector<int64_t> unsettled_;  // the writer thread's, as of the newest commit
  bool settles_ = true;             // the writer thread's: no disk is full, nothing failed
  int wal_pages_ = 0;               // the writer thread's
  bool full_ = false;               // the writer thread's

  mutable Mutex mu_;
  CondVar wake_writer_;
  CondVar wake_answerer_;
  std::deque<std::unique_ptr<Command>> queue_ TRAINYARD_GUARDED_BY(mu_);
  bool large_was_last_ TRAINYARD_GUARDED_BY(mu_) = false;
  std::deque<Answers> answers_ TRAINYARD_GUARDED_BY(mu_);
  size_t in_flight_ TRAINYARD_GUARDED_BY(mu_) = 0;
  bool stopping_ TRAINYARD_GUARDED_BY(mu_) = false;
  bool writer_done_ TRAINYARD_GUARDED_BY(mu_) = false;
  std::optional<Error> failed_ TRAINYARD_GUARDED_BY(mu_);
  std::vector<JobObserver> observers_ TRAINYARD_GUARDED_BY(mu_);  // copied before it is called

  std::jthread writer_;
  std::jthread answerer_;
};

}  // namespace trainyard::server
