// server/store/store_core.h: the objects that all parts of the store share: the lock, the writer,
// the readers.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "server/store/done.h"
#include "server/store/readers.h"
#include "server/store/state_lock.h"
#include "server/store/wait_for.h"
#include "server/store/writer.h"

namespace trainyard::server {

enum class Urgency {
  kNormal,
  kEssential,  // also runs when the disk is full
  kLarge,      // normal, but changes so many rows that it has a transaction of its own
  kPatient     // normal, but waits up to a second for other changes to share their commit
};

template <typename T, typename Body>
class TypedCommand final : public Command {
 public:
  TypedCommand(Body body, Done<T> done) : body_(std::move(body)), done_(std::move(done)) {}
  bool run(WriteContext& context) override {
    result_.emplace(body_(context));
    return result_->ok();
  }
  void answer(const std::optional<Error>& error) override {
    if (error)
      done_(*error);
    else
      done_(std::move(*result_));
  }

 private:
  Body body_;
  Done<T> done_;
  std::optional<Result<T>> result_;
};

class StoreCore {
 public:
  StoreCore(StoreOptions store_options, StateLock state_lock, std::unique_ptr<Writer> the_writer,
            std::unique_ptr<Readers> the_readers, std::string token_key);
  ~StoreCore();

  /// Queues `body(WriteContext&) -> Result<T>`.
  template <typename T, typename Body>
  void change(Body body, Done<T> done, Urgency urgency = Urgency::kNormal) {
    auto command = std::make_unique<TypedCommand<T, Body>>(std::move(body), std::move(done));
    command->essential = urgency == Urgency::kEssential;
    command->large = urgency == Urgency::kLarge;
    command->patient = urgency == Urgency::kPatient;
    writer->push(std::move(command));
  }

  /// Queues the change and waits for its result.
  template <typename T, typename Body>
  Result<T> change_and_wait(Body body, Urgency urgency = Urgency::kNormal) {
    return wait_for<T>([&](Done<T> done) { change<T>(std::move(body), std::move(done), urgency); });
  }

  /// Runs `body(Connection&) -> Result<T>` on a read-only connection, in one snapshot.
  template <typename T, typename Body>
  Result<T> read(Body body) {
    ASSIGN_OR_RETURN(Readers::Lease lease, readers->take());
    try {
      Transaction transaction(*lease, Transaction::Kind::kRead);
      Result<T> result = body(*lease);
      transaction.commit();
      return result;
    } catch (const SqliteError& e) {
      return to_error(e);
    }
  }

  const StoreOptions options;
  const std::string page_token_key;
  std::atomic<int64_t> dataset_changes{0};  // see DatasetStore::changes()
  // Declared in this order so that the writer and the readers are destroyed before the lock is
  // released.
  StateLock lock;
  std::unique_ptr<Readers> readers;
  std::unique_ptr<Writer> writer;
};

}  // namespace trainyard::server
