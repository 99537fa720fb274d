#include "server/store/writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "server/store/dependencies.h"
#include "server/store/wait_for.h"
#include "src/base/check.h"
#include "src/base/disk_space.h"
#include "src/base/mutex.h"

namespace trainyard::server {
namespace {

Error refused_full() {
  return make_error(ErrorCode::kResourceExhausted, "STORAGE_FULL",
                    "The server's disk is full: nothing was stored; free space and try again.");
}

Error refused_stopping() {
  return make_error(ErrorCode::kUnavailable, "SERVER_DRAINING", "The server is stopping.");
}

class Settle final : public Command {
 public:
  bool run(WriteContext& context) override { return settle_dependents(context); }
  void answer(const std::optional<Error>& /*error*/) override {}
};

int count_wal_pages(void* pages, sqlite3*, const char*, int count) {
  *static_cast<int*>(pages) = count;
  return SQLITE_OK;
}

}  // namespace

Writer::Writer(WriterOptions options, OpenStore store, const Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      db_(std::move(store.db)),
      commit_(store.commit),
      mark_(std::move(store.mark)),
      unsettled_(std::move(store.unsettled)) {
  sqlite3_wal_hook(db_->get(), count_wal_pages, &wal_pages_);
  keep_reserve();
  answerer_ = std::jthread([this] { run_answerer(); });
  writer_ = std::jthread([this] { run_writer(); });
}

Writer::~Writer() {
  {
    const MutexLock lock(mu_);
    stopping_ = true;
  }
  wake_writer_.notify_all();
  writer_.join();
  answerer_.join();
}

void Writer::push(std::unique_ptr<Command> command) {
  std::optional<Error> refusal;
  {
    const MutexLock lock(mu_);
    if (stopping_)
      refusal = refused_stopping();
    else if (failed_)
      refusal = *failed_;
    else if (in_flight_ >= kCommandsMax)
      refusal = make_error(ErrorCode::kUnavailable, "STORE_BUSY",
                           "The server's store has too many changes waiting: try again.");
    else {
      ++in_flight_;
      impatient_ += command->patient ? 0 : 1;
      queue_.push_back(std::move(command));
    }
    if (refusal && !writer_done_) {
      // The answering thread delivers refusals too, so that `done` never runs while its caller
      // holds a lock.
      ++in_flight_;
      Answers answers;
      answers.group.push_back(std::move(command));
      answers.errors.push_back(refusal);
      answers_.push_back(std::move(answers));
    }
  }
  if (!refusal) {
    wake_writer_.notify_one();
  } else if (command) {        // both threads have ended
    command->answer(refusal);  // NOLINT(bugprone-use-after-move): null if it was moved
  } else {
    wake_answerer_.notify_one();
  }
}

void Writer::observe(JobObserver observer) {
  const MutexLock lock(mu_);
  observers_.push_back(std::move(observer));
}

Status Writer::health() const {
  const MutexLock lock(mu_);
  if (failed_) return *failed_;
  return {};
}

void Writer::run_writer() {
  for (;;) {
    Answers answers;
    {
      MutexLock lock(mu_);
      if (queue_.empty() && !stopping_ && wal_pages_ >= options_.checkpoint_pages && !failed_) {
        lock.unlock();
        checkpoint(SQLITE_CHECKPOINT_PASSIVE);
        lock.lock();
      }
      wait_for_commands(lock);
      if (queue_.empty() && stopping_) break;
      answers.group = next_group();
    }
    answers.errors.resize(answers.group.size());
    write_group(answers);
    give_answers(std::move(answers));
    if (wal_pages_ >= kCheckpointLoadFactor * options_.checkpoint_pages)
      checkpoint(SQLITE_CHECKPOINT_PASSIVE);
  }
  if (health().ok()) checkpoint(SQLITE_CHECKPOINT_TRUNCATE);
  (void)mark_.sync();
  db_.reset();
  {
    const MutexLock lock(mu_);
    writer_done_ = true;
  }
  wake_answerer_.notify_one();
}

void Writer::wait_for_commands(MutexLock& lock) {
  // After a failure, settling is not retried before the next command, because the cause may
  // persist.
  const auto ready = [this]() TRAINYARD_REQUIRES(mu_) {
    return impatient_ > 0 || queue_.size() >= kGroupMax || stopping_ ||
           (settles_ && !unsettled_.empty());
  };
  const auto has_commands = [&]() TRAINYARD_REQUIRES(mu_) { return ready() || !queue_.empty(); };
  // An unsynced commit mark waits up to kSyncPauseUs for more commits, so that they share one sync.
  const std::chrono::microseconds pause(CommitMark::kSyncPauseUs);
  if (!mark_.is_synced() && !wake_writer_.wait_for(lock, pause, has_commands)) {
    lock.unlock();
    (void)mark_.sync();  // the next write reports a faulty disk
    lock.lock();
  }
  wake_writer_.wait(lock, has_commands);
  wake_writer_.wait_for(lock, std::chrono::milliseconds(kPatienceMs), ready);
}

Writer::Group Writer::next_group() {
  // After a large command, all small commands go first, so that they wait for one large command at
  // most.
  const bool others_first = std::exchange(large_was_last_, false);
  Group group;
  for (auto next = queue_.begin(); next != queue_.end() && group.size() < kGroupMax;) {
    if ((*next)->large && others_first) {
      ++next;
      continue;
    }
    if ((*next)->large && !group.empty()) break;
    large_was_last_ = (*next)->large;
    impatient_ -= (*next)->patient ? 0 : 1;
    group.push_back(std::move(*next));
    next = queue_.erase(next);
    if (large_was_last_) break;
  }
  return group.empty() && !queue_.empty() ? next_group() : std::move(group);
}

void Writer::give_answers(Answers answers) {
  {
    const MutexLock lock(mu_);
    answers_.push_back(std::move(answers));
  }
  wake_answerer_.notify_one();
}

void Writer::run_answerer() {
  note_answering_thread();
  for (;;) {
    Answers answers;
    std::vector<JobObserver> observers;
    {
      MutexLock lock(mu_);
      wake_answerer_.wait(
          lock, [&]() TRAINYARD_REQUIRES(mu_) { return !answers_.empty() || writer_done_; });
      if (answers_.empty()) return;
      answers = std::move(answers_.front());
      answers_.pop_front();
      observers = observers_;
    }
    TRAINYARD_CHECK(answers.group.size() == answers.errors.size(), "a command has no answer");
    if (!answers.changes.empty())
      for (const JobObserver& observer : observers) observer(answers.changes);
    for (size_t i = 0; i < answers.group.size(); ++i) answers.group[i]->answer(answers.errors[i]);
    const MutexLock lock(mu_);
    TRAINYARD_CHECK(in_flight_ >= answers.group.size(),
                    "more commands are answered than were received");
    in_flight_ -= answers.group.size();
  }
}

void Writer::write_group(Answers& answers) {
  if (const Status s = health(); !s.ok()) return fail_group(answers, s.error());
  if (full_) {
    keep_reserve();  // sets full_ to false if there is room again
    if (!full_ && options_.disk_full) options_.disk_full(false);
  }
  try {
    write_transaction(answers, full_);
    return;
  } catch (const SqliteError& e) {
    if (e.is_full() && !full_) {
      full_ = true;
      if (options_.disk_full) options_.disk_full(true);
      free_reserve();
    } else {
      return fail_group(answers, e);
    }
  }
  try {  // runs the essential commands again, with the space of the deleted reserve
    write_transaction(answers, /*essential_only=*/true);
  } catch (const SqliteError& e) {
    fail_group(answers, e);
  }
}

void Writer::write_transaction(Answers& answers, bool essential_only) {
  answers.changes.clear();
  settles_ = false;
  std::vector<int64_t> unsettled = unsettled_;
  Transaction transaction(*db_, Transaction::Kind::kWrite);
  WriteContext context{*db_, clock_.wall_us(), answers.changes, unsettled};
  bool kept = false;
  for (size_t i = 0; i < answers.group.size(); ++i) {
    Command& command = *answers.group[i];
    if (essential_only && !command.essential) {
      answers.errors[i] = refused_full();
      continue;
    }
    answers.errors[i].reset();
    kept |= run_command(command, answers.errors[i], context);
  }
  // On a full disk the remaining space is left to the commands.
  if (!unsettled.empty() && !essential_only) {
    Settle settle;
    std::optional<Error> error;
    kept |= run_command(settle, error, context);
    if (error) unsettled.clear();  // a bug; without this it would return with each group
  }
  if (kept) count_commit();
  transaction.commit();
  unsettled_ = std::move(unsettled);
  TRAINYARD_CHECK(kept || answers.changes.empty(), "a change is reported that was rolled back");
  if (kept) mark_commit();
  settles_ = !essential_only;
}

void Writer::mark_commit() {
  ++commit_;
  if (!mark_.write(commit_)) throw SqliteError(SQLITE_IOERR, errno, "cannot write the commit mark");
  if (const int64_t now_us = clock_.steady_us();
      now_us - mark_synced_us_ >= CommitMark::kSyncPauseUs) {
    mark_synced_us_ = now_us;
    if (!mark_.sync()) throw SqliteError(SQLITE_IOERR, errno, "cannot sync the commit mark");
  }
}

void Writer::count_commit() {
  Query query(*db_,
              "INSERT INTO settings (key, value) VALUES ('commit', ?)"
              " ON CONFLICT (key) DO UPDATE SET value = excluded.value");
  query.bind_blob(std::to_string(commit_ + 1)).run();
}

bool Writer::run_command(Command& command, std::optional<Error>& error, WriteContext& context) {
  const size_t changes = context.changes.size();
  const size_t unsettled = context.unsettled.size();
  Query(*db_, "SAVEPOINT command").run();
  bool keep = false;
  try {
    keep = command.run(context);
  } catch (const SqliteError& e) {
    // A violated constraint is a bug in this one command. Any other error concerns the whole group.
    if (e.primary() != SQLITE_CONSTRAINT && e.primary() != SQLITE_TOOBIG) throw;
    error = make_error(ErrorCode::kInternal, "INTERNAL", std::string("store: ") + e.what());
  } catch (const std::exception& e) {
    error = make_error(ErrorCode::kInternal, "INTERNAL", std::string("store: ") + e.what());
  }
  if (!keep) {
    Query(*db_, "ROLLBACK TO command").run();
    context.changes.erase(context.changes.begin() + static_cast<ptrdiff_t>(changes),
                          context.changes.end());
    if (context.unsettled.size() > unsettled) context.unsettled.resize(unsettled);
  }
  Query(*db_, "RELEASE command").run();
  return keep;
}

void Writer::fail_group(Answers& answers, const Error& error) {
  answers.changes.clear();
  for (std::optional<Error>& e : answers.errors) e = error;
}

void Writer::fail_group(Answers& answers, const SqliteError& e) {
  const Error error = to_error(e);
  fail_group(answers, error);
  // These errors are temporary.
  if (e.is_full() || e.is_busy() || e.primary() == SQLITE_NOMEM) return;
  const MutexLock lock(mu_);
  failed_ = error;
}

void Writer::free_reserve() {
  std::error_code ignored;
  std::filesystem::remove(options_.reserve_path, ignored);
}

// Creates the reserve file with allocated blocks, so that its removal frees space. A disk that was
// full counts as full until there is space for twice the reserve.
void Writer::keep_reserve() {
  if (options_.reserve_bytes <= 0) {
    full_ = false;
    return;
  }
  std::error_code error;
  if (static_cast<int64_t>(std::filesystem::file_size(options_.reserve_path, error)) ==
          options_.reserve_bytes &&
      !error) {
    full_ = false;
    return;
  }
  const int64_t free_bytes = free_bytes_of(options_.reserve_path.parent_path()).value_or(0);
  if (free_bytes < 2 * options_.reserve_bytes) return;
  const UniqueFd fd(::open(options_.reserve_path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0640));
  if (fd && ::posix_fallocate(fd.get(), 0, options_.reserve_bytes) == 0) {
    full_ = false;
  } else {
    free_reserve();  // a partly allocated reserve is useless
  }
}

void Writer::checkpoint(int mode) {
  // A reader with an open transaction may keep some pages in the WAL; the next checkpoint moves
  // them.
  const int code = sqlite3_wal_checkpoint_v2(db_->get(), nullptr, mode, nullptr, nullptr);
  // Also resets the count after an error, so that the checkpoint is not retried in a loop. The next
  // commit will notice a full disk.
  wal_pages_ = 0;
  (void)code;
}

}  // namespace trainyard::server
