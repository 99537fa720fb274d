#include "server/supervisor/source_digest.h"

#include <algorithm>
#include <utility>

#include "src/base/sha256.h"

namespace trainyard::server {
SourceDigestRunner::SourceDigestRunner(Supervisor& supervisor, StatePaths paths,
                                       std::vector<std::filesystem::path> allowed_roots)
    : allowed_roots_(std::move(allowed_roots)),
      errands_(supervisor,
               {.paths = std::move(paths),
                .kind = "digest",
                .running_max = 1,
                .waiting_max = 32,
                .time_max_ms = 3600'000,
                .busy = make_error(ErrorCode::kResourceExhausted, "DIGEST_BUSY",
                                   "too many datasets are waiting to be read; call again later"),
                .late = make_error(ErrorCode::kDeadlineExceeded, "DIGEST_TIMEOUT",
                                   "reading the server's files took more than an hour")}) {}

void SourceDigestRunner::run(const v1::DatasetSpec& spec, Done<std::vector<std::string>> done) {
  v1::Assignment assignment;
  v1::DigestTask& task = *assignment.mutable_digest();
  *task.mutable_spec() = spec;
  for (const std::filesystem::path& root : allowed_roots_) task.add_allowed_roots(root.string());
  const int count = spec.sources_size();
  errands_.run(std::move(assignment), [count, done = std::move(done)](Result<v1::Outcome> outcome) {
    if (!outcome.ok()) return done(std::move(outcome).error());
    std::vector<std::string> digests(outcome->digests().begin(), outcome->digests().end());
    const bool whole = std::ranges::all_of(
        digests, [](const std::string& d) { return d.empty() || is_sha256_hex(d); });
    if (std::ssize(digests) != count || !whole) {
      return done(make_error(ErrorCode::kInternal, "WORKER_PROTOCOL",
                             "the worker reported malformed digests"));
    }
    done(std::move(digests));
  });
}

}  // namespace trainyard::server
