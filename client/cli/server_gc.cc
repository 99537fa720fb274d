// trainyard server gc: shows what nothing needs any more, then removes it.
#include <charconv>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>

#include "client/cli/command.h"
#include "client/cli/confirm.h"
#include "client/cli/relative_name.h"
#include "src/base/duration.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

constexpr client::Rpc<v1::CollectGarbageRequest, v1::CollectGarbageResponse> kCollectGarbage{
    "SystemService/CollectGarbage", client::Repeat::kNever, client::kHourMs};

struct GcOptions {
  bool dry_run = false;
  std::string older_than = "7d";
  bool unsuccessful_jobs = false;
  std::string keep_jobs;
  std::string keep_events;
  bool yes = false;
};

/// Parses a duration; the server checks its bounds.
Result<int64_t> parse_seconds(const std::string& flag, std::string_view text) {
  if (const std::optional<int64_t> seconds = parse_duration(text)) return *seconds;
  return usage_error(flag + ": " + quoted_value(text) +
                     " is not a duration, expected for example 7d, 12h, 30m or 0");
}

/// Parses --keep-jobs: "1000", "90d" or "1000,90d".
Status parse_kept_jobs(const std::string& text, v1::KeptJobs& kept) {
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    int64_t count = 0;
    const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), count);
    const bool is_count = error == std::errc() && stop == part.data() + part.size();
    if (is_count ? kept.has_newest() : kept.has_younger_than_seconds()) {
      return usage_error(
          "--keep-jobs: " + quoted_value(text) +
          " has two numbers or two durations, expected for example 1000, 90d or 1000,90d");
    }
    if (is_count) {
      kept.set_newest(count);
      continue;
    }
    ASSIGN_OR_RETURN(const int64_t seconds, parse_seconds("--keep-jobs", part));
    kept.set_younger_than_seconds(seconds);
  }
  return {};
}

std::string kind_text(v1::CollectGarbageResponse::Item::Kind kind) {
  using Item = v1::CollectGarbageResponse::Item;
  switch (kind) {
    case Item::CHECKPOINTS:
      return "checkpoints";
    case Item::UPLOAD:
      return "upload";
    case Item::FILES:
      return "files";
    case Item::JOB:
      return "job";
    case Item::EVENTS:
      return "events";
    default:
      return Item::Kind_Name(kind);
  }
}

std::string render(const v1::CollectGarbageResponse& response, bool dry_run, bool colour) {
  if (response.items().empty()) return "nothing to remove\n";
  Table table({{"WHAT"}, {"NAME"}, {"FREES", true}, {"WHY"}});
  for (const auto& item : response.items()) {
    std::string why = item.reason();
    if (item.shared_bytes() > 0) {
      why += "; another job still uses " + human_bytes(item.shared_bytes()) + " of it";
    }
    using Item = v1::CollectGarbageResponse::Item;
    const bool job =
        item.kind() == Item::CHECKPOINTS || item.kind() == Item::JOB || item.kind() == Item::EVENTS;
    table.add({kind_text(item.kind()), job ? std::string(relative_name(item.name())) : item.name(),
               human_bytes(item.freed_bytes()), why});
  }
  return table.render(colour) + human_bytes(response.freed_bytes()) +
         (dry_run ? " would be freed" : " freed") +
         (response.more() ? "; more can be removed: run the command again" : "") + "\n";
}

Status confirm_removal(Session& session, const v1::CollectGarbageResponse& planned) {
  session.err().write(render(planned, /*dry_run=*/true, session.err().colour()));
  return confirm(session, "Remove this permanently?", "nothing was removed");
}

Result<int> run_gc(Session& session, const GcOptions& options) {
  v1::CollectGarbageRequest request;
  ASSIGN_OR_RETURN(const int64_t seconds, parse_seconds("--older-than", options.older_than));
  request.set_older_than_seconds(seconds);
  request.set_unsuccessful_jobs(options.unsuccessful_jobs);
  if (!options.keep_jobs.empty()) {
    if (Status s = parse_kept_jobs(options.keep_jobs, *request.mutable_keep_jobs()); !s.ok()) {
      return std::move(s).error();
    }
  }
  if (!options.keep_events.empty()) {
    ASSIGN_OR_RETURN(const int64_t kept, parse_seconds("--keep-events", options.keep_events));
    request.set_keep_events_seconds(kept);
  }
  const bool asks = !options.dry_run && !options.yes;
  if (asks && !can_ask()) {
    return make_error(
        ErrorCode::kInvalidArgument, "NOT_CONFIRMED",
        "removing is permanent: add --yes, or --dry-run to see what would be removed");
  }
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  request.set_dry_run(options.dry_run || asks);
  ASSIGN_OR_RETURN(v1::CollectGarbageResponse response, server->call(kCollectGarbage, request));
  if (asks && !response.items().empty()) {
    if (Status sure = confirm_removal(session, response); !sure.ok()) {
      return std::move(sure).error();
    }
    request.set_dry_run(false);
    // With as_of the server removes exactly what was shown; older servers do not send it.
    if (response.has_as_of()) *request.mutable_as_of() = response.as_of();
    ASSIGN_OR_RETURN(response, server->call(kCollectGarbage, request));
  }
  for (const std::string& warning : response.warnings()) {
    session.err().line(session.err().styled(Style::kNotice, "warning:") + " " + safe_text(warning));
  }
  std::vector<std::string> names;
  for (const auto& item : response.items()) names.push_back(item.name());
  session.show(
      response, [&] { return render(response, request.dry_run(), session.out().colour()); }, names);
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command server_gc_command() {
  auto o = std::make_shared<GcOptions>();
  return {"server gc",
          "Free disk space: old jobs' checkpoints and files that nothing needs",
          {"trainyard server gc --dry-run", "trainyard server gc --older-than 30d --yes",
           "trainyard server gc --older-than 90d --unsuccessful-jobs --dry-run",
           "trainyard server gc --keep-jobs 1000,90d --keep-events 30d --dry-run"},
          "Removes checkpoints of jobs that SUCCEEDED if their model exists; those of FAILED and "
          "CANCELLED jobs only with\n--unsuccessful-jobs, because retry and fork begin with them. "
          "What an unfinished job, a model, a dataset or a fork\nneeds is kept. Jobs and their "
          "events are removed only by --keep-jobs and\n--keep-events, or the server's settings of "
          "these names: a removed job can no longer be retried or forked.",
          [o](OptionSet& options) {
            options.flag("--dry-run", o->dry_run, "show what would be removed, remove nothing");
            options.text("--older-than", "DURATION", o->older_than,
                         "checkpoints of jobs that ended at least this long ago: 7d (the default), "
                         "12h, 0");
            options.flag("--unsuccessful-jobs", o->unsuccessful_jobs,
                         "checkpoints of FAILED and CANCELLED jobs too: a retry then starts over");
            options.text("--keep-jobs", "WHICH", o->keep_jobs,
                         "remove finished jobs except the newest (1000), those of a period (90d), "
                         "or both (1000,90d); default: the server's keep_jobs");
            options.text(
                "--keep-events", "DURATION", o->keep_events,
                "remove log lines and past metrics of jobs that ended at least this long ago; "
                "default: the server's keep_events");
            options.flag("-y,--yes", o->yes, "do not ask for confirmation");
          },
          [o](Session& session) { return run_gc(session, *o); }};
}

}  // namespace trainyard::cli
