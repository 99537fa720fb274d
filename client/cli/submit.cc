// trainyard submit: submits a job from a spec file, and prints the job's name.
#include <memory>

#include "client/cli/array_view.h"
#include "client/cli/command.h"
#include "client/cli/follow_view.h"
#include "client/cli/job_file.h"
#include "client/cli/job_view.h"
#include "client/cli/relative_name.h"
#include "client/cli/temporary_folder.h"
#include "client/cli/upload_view.h"
#include "client/lib/names.h"

namespace trainyard::cli {
namespace {

constexpr client::Rpc<v1::SubmitArrayRequest, v1::JobArray> kSubmitArray{
    "JobService/SubmitArray", client::Repeat::kSome, client::kArrayMs};

struct SubmitOptions {
  std::string spec;
  std::vector<std::string> sets;
  std::vector<std::string> grids;
  std::string name, request_id;
  bool watch = false;
  bool wait = false;
  bool dry_run = false;
};

Result<int> run_submit_array(Session& session, const SubmitOptions& options,
                             const client::SpecFile& spec) {
  if (options.watch) {
    return usage_error("--watch: follows a single job; use --wait to wait for an array");
  }
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  v1::SubmitArrayRequest request;
  request.set_parent(server->parent());
  request.set_array_id(spec.file.name());
  request.set_validate_only(options.dry_run);
  request.set_request_id(options.request_id.empty() ? client::make_uuid() : options.request_id);
  *request.mutable_array() = spec.file.array();
  ASSIGN_OR_RETURN(*request.mutable_spec(), upload_files_shown(session, spec));
  auto submitted = server->call(kSubmitArray, request);
  if (!submitted.ok()) return spec.with_positions(std::move(submitted).error());
  const v1::JobArray& array = *submitted;
  if (options.dry_run) {
    session.show(array, [&] { return render_array(array, {}, 0, session.out().colour()); },
                 {array.name()});
    session.hint("The spec and all members are valid; nothing was submitted.");
    return static_cast<int>(client::kExitOk);
  }
  const std::string id(relative_name(array.name()));
  session.show(array, [&] { return id + "\n"; }, {array.name()});
  if (options.wait) return wait_for_array(session, array.name(), session.wait_s());
  session.hint("An array of " + std::to_string(array.size()) + " jobs, " + id + "-0 to " + id +
               "-" + std::to_string(array.size() - 1) + ": 'trainyard array get " + id +
               "' shows them.");
  return static_cast<int>(client::kExitOk);
}

Result<int> run_submit(Session& session, const SubmitOptions& options) {
  // The file is read before connecting, so that errors in it are reported without a server.
  TemporaryFolder scratch;
  ASSIGN_OR_RETURN(client::SpecFile spec,
                   read_job_file(session, options.spec, options.sets, scratch, options.grids));
  if (!options.name.empty()) spec.set_name(options.name);
  if (spec.file.has_array()) return run_submit_array(session, options, spec);
  ASSIGN_OR_RETURN(client::Client * server, session.client());

  v1::SubmitJobRequest request;
  request.set_parent(server->parent());
  request.set_job_id(spec.file.name());
  request.set_validate_only(options.dry_run);
  request.set_request_id(options.request_id.empty() ? client::make_uuid() : options.request_id);
  ASSIGN_OR_RETURN(*request.mutable_spec(), upload_files_shown(session, spec));
  auto submitted = server->call(client::rpc::kSubmitJob, request);
  if (!submitted.ok()) return spec.with_positions(std::move(submitted).error());
  const v1::Job& job = *submitted;
  if (options.dry_run) {
    session.show(job, [&] { return render_plan(job, session.out()); }, {job.name()});
    session.hint("The spec is valid; nothing was submitted.");
    return static_cast<int>(client::kExitOk);
  }

  const std::string id(relative_name(job.name()));
  for (const std::string& warning : job.plan().warnings()) {
    session.err().line("warning: " + safe_text(warning));
  }
  if (job.plan().has_initial_weights()) {
    session.err().line("initial weights " +
                       safe_text(initial_weights_text(job.plan().initial_weights())));
  }
  const bool stays = options.watch || options.wait;
  session.show(job, [&] { return id + "\n"; }, {job.name()});
  if (options.watch) {
    // stdout gets only the job's name (or the job, for machine formats), so the progress goes to
    // stderr.
    if (session.machine()) return wait_until_end(session, job.name(), session.wait_s());
    return watch_until_end(session, job.name(), 0, session.err());
  }
  if (options.wait) return wait_until_end(session, job.name(), session.wait_s());
  if (!stays)
    session.hint("'trainyard watch " + id + "' follows its progress, 'trainyard get " + id +
                 "' shows its state.");
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command submit_command() {
  auto o = std::make_shared<SubmitOptions>();
  return {
      "submit",
      "Submit a job, or an array of jobs",
      {"trainyard submit spec.yaml", "trainyard submit spec.yaml --watch",
       "trainyard submit spec.yaml --set recipe.optimizer.learning_rate=0.1 --set recipe.epochs=20",
       "trainyard submit spec.yaml --grid 'recipe.optimizer.learning_rate=[0.1, 0.01, 0.001]'",
       "job=$(trainyard submit spec.yaml --wait) && trainyard model export \"$job\""},
      "SPEC is a YAML or JSON file (docs/job_spec.md), or - for standard input. Files that it "
      "names are uploaded\nif the server does not have their content. Prints the job's name. With "
      "--watch or --wait the exit code\nis the job's: 0 SUCCEEDED, 1 FAILED, 8 CANCELLED.\n"
      "With --grid, or with `array` in the spec, each member becomes a job, named after the array "
      "with a number;\n--wait waits for all of them.",
      [o](OptionSet& options) {
        options.positional("SPEC", o->spec, "the job's spec file");
        options.texts("--set", "PATH=VALUE", o->sets,
                      "change a field of the spec; may be given several times");
        options.texts("--grid", "FIELD=VALUES", o->grids,
                      "a job for each value of the field; if repeated, for each combination");
        options.text("--name", "NAME", o->name,
                     "the job's or the array's name, in place of the spec's");
        options.flag("-w,--watch", o->watch, "follow the job's progress until it ends");
        options.flag("--wait", o->wait, "wait until the job ends");
        options.flag("--dry-run", o->dry_run,
                     "check and plan without submitting (data is uploaded)");
        options.text("--request-id", "UUID", o->request_id,
                     "submitting again with the same ID returns the same job");
      },
      [o](Session& session) { return run_submit(session, *o); },
      true};
}

}  // namespace trainyard::cli
