// A worker that computes nothing and misbehaves on request. It speaks WorkerService like the real
// worker and does what the job's label "act" or a call to its model says. Ingest is the real code;
// predict and generate echo their input.
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "proto/convert/data.h"
#include "proto/convert/run.h"
#include "server/worker/report_stream.h"
#include "src/data/dataset.h"
#include "src/forecast/rates.h"
#include "tests/support/tiny_model.h"
#include "trainyard/v1/worker_service.grpc.pb.h"

namespace trainyard {
namespace {

using Stream = grpc::ClientReaderWriter<v1::WorkerReport, v1::WorkerCommand>;

class FakeWorker {
 public:
  FakeWorker(std::string task, std::string nonce, Stream& stream)
      : task_(std::move(task)), nonce_(std::move(nonce)), stream_(stream) {}

  void send(v1::WorkerReport report) {
    report.set_number(++number_);
    if (number_ == 1) {
      report.set_task(task_);
      report.set_nonce(nonce_);
      report.set_protocol(kProtocols.newest);
    }
    stream_.Write(report);
  }
  void started(int64_t steps, int64_t resumed_from) {
    v1::WorkerReport report;
    report.mutable_started()->mutable_plan()->set_parameter_count(83);
    report.mutable_started()->mutable_plan()->set_steps_total(steps);
    report.mutable_started()->set_resumed_from_step(resumed_from);
    send(report);
  }
  void metric(int64_t step) {
    v1::WorkerReport report;
    v1::MetricSeries& series = *report.mutable_metrics()->add_series();
    series.set_key("train/loss");
    series.add_steps(step);
    series.add_values(1.0 / static_cast<double>(step));
    send(report);
  }
  void checkpoint(int64_t step) {
    v1::WorkerReport report;
    report.mutable_checkpoint()->set_step(step);
    send(report);
  }
  void outcome(v1::Outcome outcome) {
    v1::WorkerReport report;
    *report.mutable_outcome() = std::move(outcome);
    send(report);
    wait_for_acknowledgement();
  }
  /// Blocks until the daemon has acknowledged the newest report.
  void wait_for_acknowledgement() {
    v1::WorkerCommand command;
    while (stream_.Read(&command)) {
      if (command.acknowledged() == number_) break;
    }
  }
  void outcome(v1::Outcome::Kind kind, const char* reason = "", const char* message = "") {
    v1::Outcome o;
    o.set_kind(kind);
    o.set_reason(reason);
    o.set_message(message);
    outcome(std::move(o));
  }
  void heartbeat(int64_t idle_ms, int64_t usual_ms) {
    v1::WorkerReport report;  // unnumbered: a heartbeat is not acknowledged
    report.mutable_heartbeat()->set_idle_ms(idle_ms);
    report.mutable_heartbeat()->set_usual_ms(usual_ms);
    stream_.Write(report);
  }
  /// Reports that `steps` steps took `step_seconds` each.
  void pace(int64_t steps, double step_seconds) {
    v1::WorkerReport report;
    report.mutable_heartbeat()->set_step(steps);
    report.mutable_heartbeat()->mutable_times()->set_steps(steps);
    report.mutable_heartbeat()->mutable_times()->set_step_seconds(step_seconds);
    stream_.Write(report);
  }
  void wait_for_stop() {
    v1::WorkerCommand command;
    while (stream_.Read(&command)) {
      if (command.has_stop()) return;
    }
  }
  void wait_for_cancel(int64_t call) {
    v1::WorkerCommand command;
    while (stream_.Read(&command)) {
      if (command.cancel_call() == call || command.has_stop()) return;
    }
  }
  /// Waits for calls. Returns false if the worker is to stop or the stream is closed.
  bool next_calls(v1::ServeCalls& calls) {
    v1::WorkerCommand command;
    while (stream_.Read(&command)) {
      if (command.has_stop()) return false;
      if (!command.has_serve()) continue;
      calls = command.serve();
      return true;
    }
    return false;
  }

 private:
  const std::string task_;
  const std::string nonce_;
  Stream& stream_;
  int64_t number_ = 0;
};

void train(const v1::TrainTask& task, FakeWorker& worker) {
  const auto& labels = task.spec().labels();
  const auto label = [&](const char* key) {
    const auto it = labels.find(key);
    return it == labels.end() ? std::string() : it->second;
  };
  const std::string act = label("act");
  const int steps = label("steps").empty() ? 10 : std::stoi(label("steps"));
  const std::filesystem::path mark = std::filesystem::path(task.checkpoint_dir()) / "step";
  int64_t first = 0;
  std::ifstream(mark) >> first;

  if (act == "done_but_untold") {  // killed before its stream has sent anything
    ReportSpool spool = ReportSpool::create(task.spool_path()).value();
    std::vector<v1::WorkerReport> reports(3);
    reports[0].mutable_started()->mutable_plan()->set_steps_total(1);
    v1::MetricSeries& series = *reports[1].mutable_metrics()->add_series();
    series.set_key("train/loss");
    series.add_steps(1);
    series.add_values(0.5);
    reports[2].mutable_outcome()->set_kind(v1::Outcome::SUCCEEDED);
    reports[2].mutable_outcome()->set_steps_done(1);
    write_tiny_model(task.model_dir());
    for (int64_t i = 0; i < 3; ++i) {
      reports[static_cast<size_t>(i)].set_number(i + 1);
      if (!spool.append(reports[static_cast<size_t>(i)]).ok()) ::_exit(9);
    }
    ::raise(SIGKILL);
  }
  if (act == "crash_always") ::raise(SIGSEGV);
  if (act == "report_devices" || act == "device_fault_once") {
    std::ofstream out(std::filesystem::path(task.checkpoint_dir()) /
                      ("devices-" + std::to_string(task.attempt())));
    out << task.device();
    for (const std::string& device : task.devices()) out << " " << device;
    if (task.rows_stay_on_host()) out << ", rows stay on the host";
    if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) out << ", sees " << visible;
  }
  if (act == "device_fault_once" && task.attempt() == 1) {
    return worker.outcome(v1::Outcome::DEVICE_FAULT, "DEVICE_FAULT", "one of them stopped");
  }
  if (act == "busy_twice" && task.attempt() <= 2) {
    return worker.outcome(v1::Outcome::REFUSED, "DEVICE_BUSY", "another process has it");
  }
  if (act == "host_fault_twice" && task.attempt() <= 2) {
    return worker.outcome(v1::Outcome::REFUSED, "HOST_FAULT", "system not ready (error 802)");
  }
  if (act == "storage_trouble_twice" && task.attempt() <= 2) {
    return worker.outcome(
        v1::Outcome::REFUSED, "STORAGE_ERROR",
        ("cannot open " + task.dataset_dir() + "/x: Too many open files").c_str());
  }
  if (act == "folder_away_twice" && task.attempt() <= 2) {
    return worker.outcome(
        v1::Outcome::REFUSED, task.attempt() == 1 ? "DATASET_NOT_FOUND" : "FILE_NOT_FOUND",
        ("cannot open " + task.dataset_dir() + ": No such file or directory").c_str());
  }
  worker.started(steps, first);
  if (act == "bus_error_twice" && task.attempt() <= 2) ::raise(SIGBUS);
  if (act == "model_away_once" && task.attempt() == 1) {
    v1::Outcome done;
    done.set_kind(v1::Outcome::SUCCEEDED);
    done.set_steps_done(steps);
    return worker.outcome(std::move(done));
  }
  if (act == "exit_silently") ::_exit(0);
  if (act == "refuse")
    return worker.outcome(v1::Outcome::REFUSED, "LOSS_NOT_FINITE", "step 3: NaN");
  if (act == "fault") return worker.outcome(v1::Outcome::FAULT, "OUT_OF_MEMORY", "no memory");
  if (act == "device_fault" || act == "kernel_fault") {
    worker.metric(4);
    const std::string node = task.names_faults() ? "conv1 (Conv): " : "";
    return worker.outcome(v1::Outcome::DEVICE_FAULT,
                          act == "kernel_fault" ? "KERNEL_FAULT" : "DEVICE_FAULT",
                          (node + "an error (error 7)").c_str());
  }
  if (act == "hang") {
    ::signal(SIGTERM, SIG_IGN);
    for (;;) ::pause();
  }
  if (act == "stall" || act == "slow") {  // its heartbeats continue
    ::signal(SIGTERM, SIG_IGN);
    const int64_t usual_ms = act == "slow" ? 100'000 : 10;
    for (int64_t idle_ms = 0; act == "stall" || idle_ms < 1'500; idle_ms += 100) {
      worker.heartbeat(idle_ms, usual_ms);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  for (int64_t step = first + 1; step <= steps; ++step) {
    worker.metric(step);
    if (act == "die_once" && first == 0 && step == steps / 2) {
      std::ofstream(mark) << step;
      worker.checkpoint(step);
      std::cerr << "about to die\n";
      worker.wait_for_acknowledgement();  // returns once the checkpoint is stored
      ::raise(SIGKILL);
    }
  }
  if (act == "wait_for_stop") {
    if (!label("step_seconds").empty()) worker.pace(steps, std::stod(label("step_seconds")));
    worker.wait_for_stop();
    std::ofstream(mark) << steps / 2;
    worker.checkpoint(steps / 2);
    return worker.outcome(v1::Outcome::STOPPED);
  }
  if (act == "ignore_stop") {
    ::signal(SIGTERM, SIG_IGN);
    for (;;) ::pause();
  }
  write_tiny_model(task.model_dir());
  if (act == "deliver_nonsense") {
    const std::filesystem::path model(task.model_dir());
    std::ofstream(model / (label("nonsense") == "json" ? "model.json" : "model.safetensors"))
        << (label("nonsense") == "json" ? "{}" : "8 bytes.");
  }
  v1::Outcome done;
  done.set_kind(v1::Outcome::SUCCEEDED);
  done.set_steps_done(steps);
  (*done.mutable_final_metrics())["val/accuracy"] = 0.75;
  worker.outcome(std::move(done));
}

void ingest(const v1::IngestTask& task, FakeWorker& worker) {
  const std::string target = task.spec().csv().target();
  if (target == "missing") {
    return worker.outcome(v1::Outcome::REFUSED, "DATASET_INVALID", "no column 'missing'");
  }
  if (target == "held") {  // blocks until the test creates the file "go"
    const std::filesystem::path scratch = std::filesystem::path(task.output_dir()).parent_path();
    while (!std::filesystem::exists(scratch.parent_path().parent_path() / "go")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  const std::vector<std::filesystem::path> paths(task.source_paths().begin(),
                                                 task.source_paths().end());
  const Result<IngestRequest> request = to_ingest_request(task.spec(), paths);
  const Result<DatasetSchema> schema =
      trainyard::ingest(*request, task.output_dir(), local_files());
  if (!schema.ok()) return worker.outcome(to_outcome(schema.error()));
  v1::Outcome done;
  done.set_kind(v1::Outcome::SUCCEEDED);
  *done.mutable_schema() = to_proto(*schema);
  if (target == "dies_behind_its_outcome") {
    v1::WorkerReport report;
    *report.mutable_outcome() = std::move(done);
    worker.send(std::move(report));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // lets the report arrive
    ::raise(SIGKILL);
  }
  worker.outcome(std::move(done));
}

/// The text of a call's CSV says what the fake does: "slow", "die", "die once", "refuse", "wait N"
/// (milliseconds), "memory N" (the bytes that it reports as used), "pid" (it returns its PID).
v1::Outcome predict(const v1::ServeTask& task, const v1::PredictRequest& request, int batch,
                    bool warm, int64_t* memory_bytes) {
  std::string csv = request.csv();
  if (csv == "slow") {
    ::signal(SIGTERM, SIG_IGN);
    for (;;) ::pause();
  }
  if (csv == "die") ::raise(SIGABRT);
  if (csv == "die once") {
    const std::filesystem::path mark = std::filesystem::path(task.model_dir()) / "died";
    if (!std::filesystem::exists(mark)) {
      std::ofstream(mark) << "once";
      ::raise(SIGABRT);
    }
  }
  if (csv == "refuse") {
    return to_outcome(make_error(ErrorCode::kInvalidArgument, "DATASET_INVALID", "row 1"));
  }
  if (csv.starts_with("wait ")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(std::stoll(csv.substr(5))));
  }
  if (csv.starts_with("memory ")) *memory_bytes = std::stoll(csv.substr(7));
  if (csv == "pid") csv = std::to_string(::getpid());
  v1::Outcome done;
  done.set_kind(v1::Outcome::SUCCEEDED);
  v1::PredictResponse& response = *done.mutable_predictions();
  response.set_warm(warm);
  response.set_compute_us(1);
  response.add_predictions()->set_label(csv);
  response.mutable_predictions(0)->set_label_index(batch);
  return done;
}

v1::Outcome generate(const v1::ServeCall& call, FakeWorker& worker, bool warm) {
  const std::string& prompt = call.generate().prompt();
  if (prompt == "die") ::raise(SIGABRT);
  for (int64_t i = 1; i <= call.generate().token_count(); ++i) {
    v1::WorkerReport report;
    report.mutable_generated()->set_text(prompt);
    report.mutable_generated()->set_token_count(i);
    report.mutable_generated()->set_warm(warm);
    worker.send(std::move(report));
  }
  if (prompt == "die late") ::raise(SIGABRT);
  if (prompt == "deaf") {
    ::signal(SIGTERM, SIG_IGN);
    for (;;) ::pause();
  }
  v1::Outcome done;
  done.set_kind(v1::Outcome::SUCCEEDED);
  if (prompt == "endless") {
    worker.wait_for_cancel(call.number());
    return to_outcome(make_error(ErrorCode::kCancelled, "CANCELLED", "stopped before the end"));
  }
  return done;
}

v1::Outcome evaluate(const v1::ServeCall::EvaluateCall& call, bool warm) {
  const Result<DatasetSchema> schema = read_schema(call.dataset_dir());
  if (!schema.ok()) return to_outcome(schema.error());
  v1::Outcome done;
  done.set_kind(v1::Outcome::SUCCEEDED);
  done.mutable_evaluation()->set_row_count(schema->train_rows);
  done.mutable_evaluation()->set_warm(warm);
  return done;
}

void serve(const v1::ServeTask& task, FakeWorker& worker) {
  v1::ServeCalls calls = task.first();
  int64_t memory_bytes = 1 << 20;
  bool warm = false;
  do {
    v1::WorkerReport report;
    for (const v1::ServeCall& call : calls.calls()) {
      v1::Outcome outcome = call.has_predict() ? predict(task, call.predict(), calls.calls_size(),
                                                         warm, &memory_bytes)
                            : call.has_generate() ? generate(call, worker, warm)
                                                  : evaluate(call.evaluate(), warm);
      v1::ServeAnswer& answer = *report.mutable_answers()->add_answers();
      answer.set_number(call.number());
      *answer.mutable_outcome() = std::move(outcome);
    }
    report.mutable_answers()->set_memory_bytes(memory_bytes);
    worker.send(std::move(report));
    warm = true;
  } while (worker.next_calls(calls));
  worker.outcome(v1::Outcome::STOPPED);
}

void measure(const v1::MeasureTask& task, FakeWorker& worker) {
  if (task.spec().labels().contains("act")) ::raise(SIGABRT);
  v1::Outcome done;
  done.set_kind(v1::Outcome::SUCCEEDED);
  done.set_workspace_bytes(4096);
  worker.outcome(std::move(done));
}

void inspect(const v1::InspectTask& task, FakeWorker& worker) {
  const Result<WeightsFile> file = WeightsFile::open(task.path());
  if (!file.ok()) return worker.outcome(to_outcome(file.error()));
  v1::Outcome done;
  done.set_kind(v1::Outcome::SUCCEEDED);
  for (const FileTensor& t : file->tensors()) *done.add_tensors() = to_proto(t);
  worker.outcome(std::move(done));
}

/// Reports the rates of a device on which each node takes 0.1 ms plus 2 ns per byte, with at most
/// 1e9 FLOP/s and a memory bandwidth of 5e8 bytes/s.
void calibrate(FakeWorker& worker) {
  DeviceRates rates;
  for (const char* op : {"Gemm", "GemmGrad", "GemmGrad/no_dx", "Relu", "(step)"}) {
    for (const double size : {1e2, 1e3, 1e4, 1e5}) {
      RateSample sample;
      sample.node.op = op;
      sample.node.bytes = size;
      sample.seconds = 1e-4 + size * 2e-9;
      rates.samples.push_back(sample);
    }
  }
  RateSample best;
  best.node.op = "LambUpdate";
  best.node.flops = 1e6;
  best.node.memory_bytes = 5e5;
  best.seconds = 1e-3;
  rates.samples.push_back(best);
  v1::Outcome done;
  done.set_kind(v1::Outcome::SUCCEEDED);
  done.set_rates(to_json_text(rates));
  worker.outcome(std::move(done));
}

/// Reports success through the real worker's stream, although a folder is in the place of the model
/// file, so that the model cannot be read.
int finish_unreadable(const v1::TrainTask& task, v1::WorkerService::Stub& stub,
                      ReportStream::Options options) {
  std::filesystem::create_directories(std::filesystem::path(task.model_dir()) /
                                      "model.safetensors");
  options.heartbeat_interval = std::chrono::milliseconds(200);
  ReportStream stream(stub, std::move(options), [](const std::string&) { ::_exit(1); });
  v1::WorkerReport started, done;
  started.mutable_started()->mutable_plan()->set_steps_total(1);
  stream.send(std::move(started));
  done.mutable_outcome()->set_kind(v1::Outcome::SUCCEEDED);
  done.mutable_outcome()->set_steps_done(1);
  stream.send(std::move(done));
  return stream.drain() ? 0 : 1;
}

int run(const std::string& socket, const std::string& task) {
  std::string nonce;
  std::getline(std::cin, nonce);
  auto stub = v1::WorkerService::NewStub(
      grpc::CreateChannel("unix:" + socket, grpc::InsecureChannelCredentials()));
  grpc::ClientContext attach;
  v1::AttachRequest request;
  request.set_task(task);
  request.set_nonce(nonce);
  request.set_version(TRAINYARD_VERSION);
  // The worker whose exchange was recorded sent no protocol range.
  if (std::getenv("TRAINYARD_EXCHANGE") == nullptr) {
    request.set_protocol_min(kProtocols.oldest);
    request.set_protocol_max(kProtocols.newest);
  }
  v1::Assignment assignment;
  if (!stub->Attach(&attach, request, &assignment).ok()) return 1;
  if (const auto& labels = assignment.train().spec().labels();
      labels.contains("act") && labels.at("act") == "model_unreadable") {
    return finish_unreadable(assignment.train(), *stub, {.task = task, .nonce = nonce});
  }
  grpc::ClientContext report;
  const auto stream = stub->Report(&report);
  FakeWorker worker(task, nonce, *stream);
  if (assignment.has_train()) train(assignment.train(), worker);
  if (assignment.has_ingest()) ingest(assignment.ingest(), worker);
  if (assignment.has_serve()) serve(assignment.serve(), worker);
  if (assignment.has_measure()) measure(assignment.measure(), worker);
  if (assignment.has_calibrate()) calibrate(worker);
  if (assignment.has_inspect()) inspect(assignment.inspect(), worker);
  if (assignment.has_check_device()) worker.outcome(v1::Outcome::SUCCEEDED);
  ::_exit(0);
}

}  // namespace
}  // namespace trainyard

int main(int, char** argv) { return trainyard::run(argv[2], argv[4]); }
