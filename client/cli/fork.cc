// trainyard retry, fork, checkpoint list: new jobs that start from a checkpoint of another job.
#include <charconv>
#include <memory>

#include "client/cli/command.h"
#include "client/cli/follow_view.h"
#include "client/cli/job_view.h"
#include "client/cli/output_json.h"
#include "client/cli/relative_name.h"
#include "client/lib/names.h"
#include "client/lib/spec_file.h"
#include "proto/spec/writer.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

// The server copies a checkpoint of any size before it replies to a retry or a fork.
constexpr client::Rpc<v1::RetryJobRequest, v1::Job> kRetryJob{
    "JobService/RetryJob", client::Repeat::kSome, client::kHourMs};
constexpr client::Rpc<v1::ForkJobRequest, v1::Job> kForkJob{"JobService/ForkJob",
                                                            client::Repeat::kSome, client::kHourMs};
constexpr client::Rpc<v1::ListCheckpointsRequest, v1::ListCheckpointsResponse> kListCheckpoints{
    "JobService/ListCheckpoints"};

struct RetryOptions {
  std::string job;
  std::string name;
  bool from_start = false;
  bool wait = false;
};

struct ForkOptions {
  std::string job;  // JOB or JOB@STEP
  std::vector<std::string> sets;
  std::string name;
  bool wait = false;
  bool dry_run = false;
};

/// Prints the new job's name; with `wait` also waits for its end.
Result<int> show_new(Session& session, const v1::Job& job, bool wait) {
  const std::string id(relative_name(job.name()));
  session.show(job, [&] { return id + "\n"; }, {job.name()});
  if (wait) return wait_until_end(session, job.name(), session.wait_s());
  const v1::JobOrigin& origin = job.origin();
  session.hint(origin.step() > 0 ? id + " continues from step " + grouped(origin.step()) + " of " +
                                       safe_text(relative_name(origin.job())) + "."
                                 : id + " begins from the start.");
  for (const std::string& change : origin.changes()) session.hint("  " + safe_text(change));
  return static_cast<int>(client::kExitOk);
}

Result<int> run_retry(Session& session, const RetryOptions& options) {
  v1::RetryJobRequest request;
  ASSIGN_OR_RETURN(*request.mutable_name(), session.full_name("jobs", options.job));
  request.set_from_start(options.from_start);
  request.set_job_id(options.name);
  request.set_request_id(client::make_uuid());
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  const auto job = server->call(kRetryJob, request);
  if (!job.ok()) return client::with_user_field_names(job.error(), "--name");
  return show_new(session, *job, options.wait);
}

/// Splits an argument such as "digits-1@300" into the job and the step, if it has one.
Result<std::pair<std::string, std::optional<int64_t>>> split_step(const std::string& text) {
  const size_t at = text.find('@');
  if (at == std::string::npos) return std::pair{text, std::optional<int64_t>()};
  const std::string digits = text.substr(at + 1);
  int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size() || step < 1) {
    return usage_error("JOB@STEP: " + quoted_value(digits) +
                       " is not a step, expected a whole number of at least 1");
  }
  return std::pair{text.substr(0, at), std::optional(step)};
}

Result<int> run_fork(Session& session, const ForkOptions& options) {
  ASSIGN_OR_RETURN(const auto parsed, split_step(options.job));
  v1::ForkJobRequest request;
  ASSIGN_OR_RETURN(*request.mutable_name(), session.full_name("jobs", parsed.first));
  if (parsed.second) request.set_step(*parsed.second);
  request.set_job_id(options.name);
  request.set_request_id(client::make_uuid());
  request.set_validate_only(options.dry_run);
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  if (!options.sets.empty()) {
    ASSIGN_OR_RETURN(const v1::Job parent, server->call(client::rpc::kGetJob, request.name()));
    const std::string text = text_of(spec::write_spec(parent.spec()), Format::kYaml);
    ASSIGN_OR_RETURN(
        const client::SpecFile spec,
        client::parse_spec_file(text, "the spec of " + parsed.first, "", options.sets));
    if (Status single = spec.check_single("fork"); !single.ok()) return single.error();
    if (!spec.file.name().empty()) {
      return usage_error("--set name: expected --name, which names the new job");
    }
    if (spec.has_data() || spec.has_weights()) {
      return usage_error("--set: a fork keeps the data and the weights of its job");
    }
    *request.mutable_spec() = spec.job_spec();
  }
  const auto forked = server->call(kForkJob, request);
  if (!forked.ok()) return client::with_user_field_names(forked.error(), "--name");
  const v1::Job& job = *forked;
  if (options.dry_run) {
    session.show(job, [&] { return render_plan(job, session.out()); }, {job.name()});
    session.hint("The fork is possible, from step " + grouped(job.origin().step()) +
                 "; nothing was submitted.");
    return static_cast<int>(client::kExitOk);
  }
  return show_new(session, job, options.wait);
}

Result<int> run_checkpoints(Session& session, const std::string& text) {
  ASSIGN_OR_RETURN(const std::string name, session.full_name("jobs", text));
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  ASSIGN_OR_RETURN(const v1::ListCheckpointsResponse list, server->call(kListCheckpoints, name));
  std::vector<std::string> names;
  for (const v1::Checkpoint& c : list.checkpoints()) {
    names.push_back(std::string(relative_name(name)) + "@" + std::to_string(c.step()));
  }
  session.show(
      list,
      [&] {
        Table table({{"CHECKPOINT"}, {"STEP", true}, {"SIZE", true}, {"AGE", true}});
        for (int i = 0; i < list.checkpoints_size(); ++i) {
          const v1::Checkpoint& c = list.checkpoints(i);
          table.add({names[static_cast<size_t>(i)], grouped(c.step()), human_bytes(c.size_bytes()),
                     age_of(c.create_time())});
        }
        return table.render(session.out().colour());
      },
      names);
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command retry_command() {
  auto o = std::make_shared<RetryOptions>();
  return {"retry",
          "Try a failed or cancelled job again, as a new job",
          {"trainyard retry digits-1", "trainyard retry digits-1 --from-start --name digits-2"},
          "The new job starts from the newest checkpoint, else from step 0; the result is that of "
          "a job that was never\ninterrupted. To change the spec as well, use 'trainyard fork'. "
          "Prints the new job's name.",
          [o](OptionSet& options) {
            options.positional("JOB", o->job, "the job's name");
            options.flag("--from-start", o->from_start,
                         "start from step 0, not from the newest checkpoint");
            options.text("--name", "NAME", o->name,
                         "the new job's name; default: the server chooses");
            options.flag("--wait", o->wait, "wait until the new job ends");
          },
          [o](Session& session) { return run_retry(session, *o); },
          true};
}

Command fork_command() {
  auto o = std::make_shared<ForkOptions>();
  return {"fork",
          "Start a new job from a checkpoint of another job",
          {"trainyard fork digits-1 --set recipe.epochs=20",
           "trainyard fork digits-1@300 --set recipe.optimizer.learning_rate=0.01 --name slower"},
          "The new job starts with the parameters, the optimizer's state and the position in the "
          "data of that step, or of\nthe newest checkpoint ('trainyard checkpoint list'). Rates, "
          "schedule, length, regularization and augmentation may\nchange; the model, the data and "
          "the seed may not: docs/job_spec.md lists the fields. Prints the new job's name.",
          [o](OptionSet& options) {
            options.positional("JOB[@STEP]", o->job, "the job, and the step of a checkpoint");
            options.texts("--set", "PATH=VALUE", o->sets,
                          "change a field of the spec; may be given several times");
            options.text("--name", "NAME", o->name,
                         "the new job's name; default: the server chooses");
            options.flag("--wait", o->wait, "wait until the new job ends");
            options.flag("--dry-run", o->dry_run, "check and plan without submitting");
          },
          [o](Session& session) { return run_fork(session, *o); },
          true};
}

Command checkpoint_list_command() {
  auto name = std::make_shared<std::string>();
  return {"checkpoint list",
          "List the checkpoints that a job has",
          {"trainyard checkpoint list digits-1"},
          "",
          [name](OptionSet& options) { options.positional("JOB", *name, "the job's name"); },
          [name](Session& session) { return run_checkpoints(session, *name); }};
}

}  // namespace trainyard::cli
