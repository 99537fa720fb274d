#include "server/store/store.h"

#include "server/store/store_core.h"
#include "server/store/store_files.h"

namespace trainyard::server {

StoreCore::StoreCore(StoreOptions store_options, StateLock state_lock,
                     std::unique_ptr<Writer> the_writer, std::unique_ptr<Readers> the_readers,
                     std::string token_key)
    : options(std::move(store_options)),
      page_token_key(std::move(token_key)),
      lock(std::move(state_lock)),
      readers(std::move(the_readers)),
      writer(std::move(the_writer)) {}

StoreCore::~StoreCore() {
  const bool healthy = writer->health().ok();
  writer.reset();
  readers.reset();
  if (healthy) (void)mark_closed(options.state_dir);
}

Store::Store(std::unique_ptr<StoreCore> core)
    : core_(std::move(core)),
      jobs_(*core_),
      arrays_(*core_),
      datasets_(*core_),
      uploads_(*core_),
      models_(*core_),
      removals_(*core_),
      drains_(*core_),
      forecasts_(*core_),
      audit_(*core_),
      people_(*core_),
      owners_(*core_),
      quotas_(*core_) {}

Store::~Store() = default;

void Store::observe(JobObserver observer) { core_->writer->observe(std::move(observer)); }

Status Store::health() const { return core_->writer->health(); }

bool Store::is_full() const { return core_->writer->is_full(); }

std::optional<std::string> sqlite_warning() {
  // The fault is fixed in 3.51.3 and from 3.53.0 on; 3.52.0 was withdrawn.
  const int version = sqlite3_libversion_number();
  if ((version >= 3051003 && version < 3052000) || version >= 3053000) return std::nullopt;
  return std::string("SQLite ") + sqlite3_libversion() +
         " can lose commits when another program checkpoints the open store (fixed in 3.51.3 and "
         "3.53.0): open it only with 'sqlite3 -readonly' while trainyardd runs.";
}

}  // namespace trainyard::server
