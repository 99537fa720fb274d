// Tests of the API over gRPC, except jobs: datasets, uploads, predict, system, tokens, malformed
// messages.
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/server/service_support.h"
#include "tests/support/patience.h"

namespace trainyard::server {
namespace {

/// Writes a self-signed certificate for 127.0.0.1 and its key as PEM files.
void make_certificate(const std::filesystem::path& certificate, const std::filesystem::path& key,
                      long valid_seconds = 3600) {
  EVP_PKEY* pkey = EVP_EC_gen("P-256");
  X509* x509 = X509_new();
  X509_set_version(x509, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(x509), 1);
  X509_gmtime_adj(X509_getm_notBefore(x509), -3600);
  X509_gmtime_adj(X509_getm_notAfter(x509), valid_seconds);
  X509_set_pubkey(x509, pkey);
  X509_NAME* name = X509_get_subject_name(x509);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(x509, name);
  X509_EXTENSION* san =
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
  X509_add_ext(x509, san, -1);
  X509_EXTENSION_free(san);
  X509_sign(x509, pkey, EVP_sha256());
  FILE* file = std::fopen(certificate.c_str(), "w");
  PEM_write_X509(file, x509);
  std::fclose(file);
  file = std::fopen(key.c_str(), "w");
  PEM_write_PrivateKey(file, pkey, nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(file);
  X509_free(x509);
  EVP_PKEY_free(pkey);
}

using ServiceApi = ServiceTest;

TEST_F(ServiceApi, EveryUnaryMethodRefusesMalformedBytesWithAMessage) {
  for (
      const char* method :
      {"JobService/SubmitJob",        "JobService/PlanJob",           "JobService/GetJob",
       "JobService/ListJobs",         "JobService/ListQueue",         "JobService/CancelJob",
       "JobService/SetJobPriority",   "JobService/DeleteJob",         "JobService/SubmitArray",
       "JobService/GetArray",         "JobService/ListArrays",        "JobService/CancelArray",
       "JobService/PauseArray",       "JobService/ResumeArray",       "JobService/DeleteArray",
       "DatasetService/GetUpload",    "DatasetService/CreateDataset", "DatasetService/GetDataset",
       "DatasetService/ListDatasets", "DatasetService/DeleteDataset", "ModelService/CreateModel",
       "ModelService/ListModels",     "ModelService/GetModel",        "ModelService/Predict",
       "ModelService/Evaluate",       "ModelService/DeleteModel",     "SystemService/GetServerInfo",
       "SystemService/ListDevices",   "SystemService/CollectGarbage", "JobService/ReadSpec",
       "SystemService/ListAudit",     "SystemService/SetQuota",       "SystemService/ListQuotas",
       "SystemService/GetUsage"}) {
    const std::string path = std::string("/trainyard.v1.") + method;
    const grpc::Status cut = call_raw(path, "\x0a\x7fxx");
    EXPECT_EQ(cut.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
    EXPECT_EQ(reason_of(cut), "REQUEST_MALFORMED") << method;
    const grpc::Status unknown = call_raw(path, "\xf8\x07\x01");  // field 127, varint 1
    EXPECT_EQ(unknown.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
    EXPECT_EQ(reason_of(unknown), "FIELD_UNKNOWN") << method;
  }
  EXPECT_EQ(call_raw("/trainyard.v1.JobService/Nothing", "").error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  std::string nested = "x";
  for (int i = 0; i < 300; ++i) nested = "\x1a" + std::string(1, '\x02') + nested;
  EXPECT_FALSE(call_raw("/trainyard.v1.JobService/SubmitJob", nested).ok());
  EXPECT_EQ(call_raw("/trainyard.v1.JobService/GetJob", "\x0a\x02\xff\xfe").error_code(),
            grpc::StatusCode::INVALID_ARGUMENT)
      << "a name that is not UTF-8";
}

TEST_F(ServiceApi, AMessageTooLargeIsRefusedAndTheDaemonContinues) {
  EXPECT_EQ(call_raw("/trainyard.v1.JobService/GetJob", std::string(5 << 20, 'x')).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  v1::ServerInfo info;
  EXPECT_TRUE(system_->GetServerInfo(context().get(), {}, &info).ok());
}

TEST_F(ServiceApi, AnInterruptedUploadContinuesOnTheNextStream) {
  const std::string content(100'000, 'c');
  v1::Upload up;
  ASSERT_TRUE(upload(content, &up, /*finish=*/false).ok());
  EXPECT_EQ(up.committed_size(), 100'000);
  EXPECT_FALSE(up.complete()) << "only a finish completes";
  v1::CreateDatasetRequest create;
  create.mutable_spec()->add_sources()->set_sha256(sha256_hex(content));
  create.mutable_spec()->mutable_sources(0)->set_role(v1::DatasetSource::DATA);
  create.mutable_spec()->mutable_csv()->set_target("t");
  v1::Dataset dataset;
  EXPECT_EQ(reason_of(datasets_->CreateDataset(context().get(), create, &dataset)),
            "UPLOAD_INCOMPLETE");
  auto c = context();
  auto stream = datasets_->UploadFile(c.get(), &up);
  v1::UploadFileRequest request;
  request.mutable_start()->set_sha256(sha256_hex(content));
  request.mutable_start()->set_size_bytes(100'000);
  request.mutable_start()->set_offset(100'000);
  stream->Write(request);
  request.mutable_finish();
  stream->Write(request);
  stream->WritesDone();
  ASSERT_TRUE(stream->Finish().ok());
  EXPECT_TRUE(up.complete());
  v1::GetUploadRequest get;
  get.set_name("projects/default/uploads/" + sha256_hex("never seen"));
  ASSERT_TRUE(datasets_->GetUpload(context().get(), get, &up).ok());
  EXPECT_EQ(up.committed_size(), 0);
  EXPECT_EQ(up.name(), get.name());
}

// One message is stored while the next one arrives: none may be lost, and none stored after a
// refusal.
TEST_F(ServiceApi, ADamagedChunkEndsTheStreamAtItsOffset) {
  constexpr int64_t kChunks = 50, kBytes = 10'000, kDamaged = 30;
  std::string content;
  for (int64_t i = 0; i < kChunks * kBytes; ++i) content += static_cast<char>(i * 131 >> 7);
  v1::Upload up;
  const auto send = [&](int64_t from, int64_t damaged) {
    auto c = context();
    auto stream = datasets_->UploadFile(c.get(), &up);
    v1::UploadFileRequest request;
    request.mutable_start()->set_sha256(sha256_hex(content));
    request.mutable_start()->set_size_bytes(kChunks * kBytes);
    request.mutable_start()->set_offset(from * kBytes);
    bool open = stream->Write(request);
    for (int64_t i = from; open && i < kChunks; ++i) {
      const std::string part = content.substr(static_cast<size_t>(i * kBytes), kBytes);
      request.mutable_chunk()->set_offset(i * kBytes);
      request.mutable_chunk()->set_data(part);
      request.mutable_chunk()->set_crc32c(crc32c(part) + (i == damaged ? 1 : 0));
      open = stream->Write(request);
    }
    request.mutable_finish();
    stream->Write(request);
    stream->WritesDone();
    return stream->Finish();
  };
  EXPECT_EQ(reason_of(send(0, kDamaged)), "CHUNK_CHECKSUM_MISMATCH");
  v1::GetUploadRequest get;
  get.set_name("projects/default/uploads/" + sha256_hex(content));
  ASSERT_TRUE(datasets_->GetUpload(context().get(), get, &up).ok());
  EXPECT_EQ(up.committed_size(), kDamaged * kBytes);
  const grpc::Status rest = send(kDamaged, -1);
  EXPECT_TRUE(rest.ok()) << rest.error_message();
  EXPECT_TRUE(up.complete());
}

TEST_F(ServiceApi, ADatasetIsCheckedBeforeItsFilesAreSent) {
  v1::CreateDatasetRequest create;
  create.set_validate_only(true);
  create.set_dataset_id("a-table");
  create.mutable_spec()->add_sources()->set_role(v1::DatasetSource::DATA);
  create.mutable_spec()->mutable_csv()->set_target("t");
  v1::Dataset dataset;
  EXPECT_TRUE(datasets_->CreateDataset(context().get(), create, &dataset).ok());
  EXPECT_EQ(dataset.name(), "");
  v1::GetDatasetRequest get;
  get.set_name("projects/default/datasets/a-table");
  EXPECT_EQ(reason_of(datasets_->GetDataset(context().get(), get, &dataset)), "DATASET_NOT_FOUND");
  create.set_dataset_id("not a name");
  EXPECT_EQ(reason_of(datasets_->CreateDataset(context().get(), create, &dataset)),
            "NAME_MALFORMED");
  create.set_dataset_id("a-table");
  create.mutable_spec()->mutable_csv()->set_delimiter("two");
  EXPECT_FALSE(datasets_->CreateDataset(context().get(), create, &dataset).ok());
  create.mutable_spec()->mutable_csv()->clear_delimiter();
  create.set_validate_only(false);
  EXPECT_EQ(reason_of(datasets_->CreateDataset(context().get(), create, &dataset)),
            "NAME_MALFORMED")
      << "without a digest there is nothing to create";
  v1::GetUploadRequest size;
  size.set_name("projects/default/uploads/" + sha256_hex("new"));
  size.set_size_bytes(321);
  v1::Upload up;
  ASSERT_TRUE(datasets_->GetUpload(context().get(), size, &up).ok());
  EXPECT_TRUE(up.size_is_new());
  ASSERT_TRUE(upload(std::string(321, 'n'), &up).ok());
  ASSERT_TRUE(datasets_->GetUpload(context().get(), size, &up).ok());
  EXPECT_FALSE(up.size_is_new());
}

TEST_F(ServiceApi, AnUploadThatBeginsWithoutAStartOrIsOfAWrongDigestIsRefused) {
  v1::Upload up;
  auto c = context();
  auto stream = datasets_->UploadFile(c.get(), &up);
  v1::UploadFileRequest request;
  request.mutable_chunk()->set_data("x");
  stream->Write(request);
  EXPECT_EQ(reason_of(stream->Finish()), "FIELD_REQUIRED");
  auto c2 = context();
  auto second = datasets_->UploadFile(c2.get(), &up);
  request.mutable_start()->set_sha256(sha256_hex("other"));
  request.mutable_start()->set_size_bytes(1);
  second->Write(request);
  request.mutable_chunk()->set_data("x");
  request.mutable_chunk()->set_crc32c(crc32c("x"));
  second->Write(request);
  request.mutable_finish();
  second->Write(request);
  EXPECT_EQ(reason_of(second->Finish()), "CONTENT_HASH_MISMATCH");
}

TEST_F(ServiceApi, ADatasetIsIngestedOnceAndAFailedOneSaysWhy) {
  make_dataset();
  EXPECT_EQ(dataset_.state(), v1::Dataset::READY);
  EXPECT_EQ(dataset_.schema().train_rows(), 120);
  EXPECT_GT(dataset_.size_bytes(), 0);
  const std::string digest = dataset_.digest();
  make_dataset();  // the same ID and content again
  EXPECT_EQ(dataset_.digest(), digest);
  make_dataset("missing", "broken");
  EXPECT_EQ(dataset_.state(), v1::Dataset::FAILED);
  EXPECT_EQ(dataset_.reason(), "DATASET_INVALID");
  v1::SubmitJobRequest request = job_request("on-broken", "");
  request.mutable_spec()->mutable_dataset()->set_name("broken");
  v1::Job job;
  EXPECT_EQ(reason_of(submit(request, &job)), "DATASET_NOT_READY");
  v1::DeleteDatasetRequest remove;
  google::protobuf::Empty empty;
  remove.set_name("projects/default/datasets/iris");
  submit("user-of-iris", "wait_for_stop");
  EXPECT_EQ(reason_of(datasets_->DeleteDataset(context().get(), remove, &empty)), "DATASET_IN_USE");
  ASSERT_TRUE(cancel("user-of-iris", &job).ok());
  wait_for("user-of-iris", v1::CANCELLED);
  EXPECT_TRUE(datasets_->DeleteDataset(context().get(), remove, &empty).ok());
  EXPECT_FALSE(std::filesystem::exists(config_.state_dir / "datasets" / digest));
}

TEST_F(ServiceApi, ASmallDatasetDoesNotWaitForLargeOnes) {
  std::string rows;
  for (int64_t i = 0; rows.size() < (20u << 20); ++i) {
    rows += std::to_string(i * 7919 % 100'003) + (i % 2 == 0 ? ".5,x\n" : ".25,y\n");
  }
  std::vector<std::string> large;
  for (const char* id : {"aaaa", "bbbb", "cccc"}) {
    large.push_back(create_csv(std::string(id) + ",held\n" + rows, id, "held").name());
  }
  make_dataset();
  EXPECT_EQ(dataset_.state(), v1::Dataset::READY);
  for (const std::string& name : large) {
    EXPECT_EQ(get_dataset(name).state(), v1::Dataset::INGESTING) << name;
  }
  std::ofstream(config_.state_dir / "go") << "they may end";
  for (const std::string& name : large) {
    EXPECT_TRUE(eventually([&] { return get_dataset(name).state() == v1::Dataset::READY; }));
  }
}

TEST_F(ServiceApi, AJobTrainsOnTheVersionThatWasNewestWhenItWasSubmitted) {
  make_dataset();
  const std::string first = dataset_.digest();
  submit("on-first", "");
  make_dataset("species", "iris", 1);
  EXPECT_EQ(dataset_.name(), "projects/default/datasets/iris@2");
  EXPECT_EQ(dataset_.version(), 2);
  const std::string second = dataset_.digest();
  EXPECT_NE(second, first);
  submit("on-second", "wait_for_stop");
  v1::SubmitJobRequest request = job_request("on-named", "");
  request.mutable_spec()->mutable_dataset()->set_name("iris@1");
  v1::Job job;
  ASSERT_TRUE(submit(request, &job).ok());
  wait_for("on-first", v1::SUCCEEDED);
  wait_for("on-named", v1::SUCCEEDED);
  const auto trained_on = [&](const std::string& id) {
    v1::GetModelRequest get;
    get.set_name("projects/default/models/" + id);
    v1::Model model;
    EXPECT_TRUE(models_->GetModel(context().get(), get, &model).ok());
    return model.dataset();
  };
  for (const char* id : {"on-first", "on-named"}) {
    EXPECT_EQ(get(id).spec().dataset().name(), "projects/default/datasets/iris@1");
    EXPECT_EQ(trained_on(id), "projects/default/datasets/iris@1");
  }
  EXPECT_EQ(get("on-second").spec().dataset().name(), "projects/default/datasets/iris@2");

  request = job_request("on-none", "");
  request.mutable_spec()->mutable_dataset()->set_name("iris@3");
  const grpc::Status none = submit(request, &job);
  EXPECT_EQ(none.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_NE(none.error_message().find("versions 2, 1"), std::string::npos) << none.error_message();

  // A failed version is never the one that a job gets for the dataset's name.
  make_dataset("missing", "iris", 2);
  EXPECT_EQ(dataset_.version(), 3);
  EXPECT_EQ(dataset_.state(), v1::Dataset::FAILED);
  ASSERT_TRUE(submit(job_request("passes-over", ""), &job).ok());
  EXPECT_EQ(job.spec().dataset().name(), "projects/default/datasets/iris@2");
  request.mutable_spec()->mutable_dataset()->set_name("iris@3");
  EXPECT_EQ(reason_of(submit(request, &job)), "DATASET_NOT_READY");

  v1::ListDatasetsRequest list;
  v1::ListDatasetsResponse listed;
  ASSERT_TRUE(datasets_->ListDatasets(context().get(), list, &listed).ok());
  EXPECT_EQ(listed.datasets_size(), 1);
  EXPECT_EQ(listed.datasets(0).version(), 3);
  list.set_all_versions(true);
  ASSERT_TRUE(datasets_->ListDatasets(context().get(), list, &listed).ok());
  EXPECT_EQ(listed.datasets_size(), 3);

  v1::EvaluateRequest evaluate;
  v1::EvaluateResponse response;
  evaluate.set_name("projects/default/models/on-first");
  evaluate.set_dataset("projects/default/datasets/iris@4");
  EXPECT_EQ(reason_of(models_->Evaluate(context().get(), evaluate, &response)),
            "DATASET_NOT_FOUND");
  evaluate.set_dataset("projects/default/datasets/iris@x");
  EXPECT_EQ(reason_of(models_->Evaluate(context().get(), evaluate, &response)), "NAME_MALFORMED");

  const auto has_files = [&](const std::string& digest) {
    return std::filesystem::exists(config_.state_dir / "datasets" / digest);
  };
  v1::DeleteDatasetRequest remove;
  google::protobuf::Empty empty;
  remove.set_name("projects/default/datasets/iris@1");
  wait_for("passes-over", v1::SUCCEEDED);
  ASSERT_TRUE(datasets_->DeleteDataset(context().get(), remove, &empty).ok());
  EXPECT_FALSE(has_files(first));
  EXPECT_TRUE(has_files(second));
  remove.set_name("projects/default/datasets/iris");
  EXPECT_EQ(reason_of(datasets_->DeleteDataset(context().get(), remove, &empty)), "DATASET_IN_USE");
  ASSERT_TRUE(cancel("on-second", &job).ok());
  wait_for("on-second", v1::CANCELLED);
  ASSERT_TRUE(datasets_->DeleteDataset(context().get(), remove, &empty).ok());
  EXPECT_FALSE(has_files(second));
  EXPECT_EQ(trained_on("on-first"), "projects/default/datasets/iris@1")
      << "what is gone has a name";
  make_dataset();
  EXPECT_EQ(dataset_.version(), 4);
}

// The file is kept once, as long as a model refers to it, and a model that a job needs cannot be
// deleted. The result of a submit is cached for the next submit of the same spec, but not after the
// dataset has changed.
TEST_F(ServiceApi, ANewSubmitUsesTheNewestVersionOfItsDataset) {
  make_dataset();
  const auto dataset_of = [&](const std::string& id) {
    v1::Job job;
    const grpc::Status s = submit(job_request(id, ""), &job);
    return s.ok() ? job.spec().dataset().name() : reason_of(s);
  };
  for (const char* id : {"job-a1", "job-a2", "job-a3"}) {
    EXPECT_EQ(dataset_of(id), "projects/default/datasets/iris@1");
  }
  make_dataset("species", "iris", 1);
  for (const char* id : {"job-b1", "job-b2", "job-b3"}) {
    EXPECT_EQ(dataset_of(id), "projects/default/datasets/iris@2");
  }
  for (const char* id : {"job-a1", "job-a2", "job-a3", "job-b1", "job-b2", "job-b3"}) {
    EXPECT_TRUE(wait_for(id, v1::SUCCEEDED).has_plan()) << id;
  }
  v1::DeleteDatasetRequest remove;
  google::protobuf::Empty empty;
  remove.set_name("projects/default/datasets/iris");
  ASSERT_TRUE(datasets_->DeleteDataset(context().get(), remove, &empty).ok());
  EXPECT_EQ(dataset_of("job-c1"), "DATASET_NOT_FOUND");
}

TEST_F(ServiceApi, AModelOfWeightsIsCreatedFromAnUpload) {
  make_dataset();
  const auto file = [](const std::string& name) {
    const std::string header =
        "{\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[8,4],\"data_offsets\":[0,128]}}";
    return std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header +
           std::string(128, '\0');
  };
  const auto create = [&](const std::string& content, const std::string& id, v1::Model* model) {
    v1::CreateModelRequest request;
    request.set_model_id(id);
    request.set_sha256(sha256_hex(content));
    return models_->CreateModel(context().get(), request, model);
  };
  const std::string weights = file("fc1.weight");
  v1::Model model;
  EXPECT_EQ(reason_of(create(weights, "base", &model)), "UPLOAD_INCOMPLETE");
  v1::Upload up;
  ASSERT_TRUE(upload(weights, &up).ok());
  EXPECT_EQ(reason_of(create(weights, "No", &model)), "NAME_MALFORMED");
  const grpc::Status made = create(weights, "base", &model);
  ASSERT_TRUE(made.ok()) << made.error_message();
  EXPECT_EQ(model.name(), "projects/default/models/base");
  EXPECT_EQ(model.job(), "");
  EXPECT_EQ(model.parameter_count(), 32);
  ASSERT_EQ(model.tensors_size(), 1);
  EXPECT_EQ(model.tensors(0).name(), "fc1.weight");
  EXPECT_TRUE(create(weights, "base", &model).ok());
  EXPECT_TRUE(create(weights, "", &model).ok());
  EXPECT_EQ(model.name(), "projects/default/models/w-" + sha256_hex(weights).substr(0, 16));

  const std::string other = file("odd.weight");
  ASSERT_TRUE(upload(other, &up).ok());
  EXPECT_EQ(reason_of(create(other, "base", &model)), "MODEL_EXISTS");
  submit("trained", "");
  wait_for("trained", v1::SUCCEEDED);
  EXPECT_EQ(reason_of(create(other, "trained", &model)), "MODEL_EXISTS");
  const std::string bad = "no safetensors file";
  ASSERT_TRUE(upload(bad, &up).ok());
  EXPECT_EQ(reason_of(create(bad, "bad-file", &model)), "MODEL_FILE_INVALID");
  v1::Job job;
  v1::SubmitJobRequest taken = job_request("base", "");
  EXPECT_EQ(reason_of(submit(taken, &job)), "JOB_EXISTS");

  // A job that starts from this model learns at submit how many of its weights will be used.
  v1::SubmitJobRequest request = job_request("tuned", "wait_for_stop");
  request.mutable_spec()->mutable_recipe()->mutable_initial_weights()->set_model("base");
  EXPECT_EQ(reason_of(submit(request, &job)), "INITIAL_WEIGHTS_MISMATCH") << "most is missing";
  request.mutable_spec()->mutable_recipe()->mutable_initial_weights()->set_partial(true);
  const grpc::Status submitted = submit(request, &job);
  ASSERT_TRUE(submitted.ok()) << submitted.error_message();
  EXPECT_EQ(job.plan().initial_weights().taken().count(), 1);
  EXPECT_EQ(job.plan().initial_weights().missing().count(), 3);
  v1::DeleteModelRequest remove;
  google::protobuf::Empty empty;
  remove.set_name("projects/default/models/base");
  EXPECT_EQ(reason_of(models_->DeleteModel(context().get(), remove, &empty)), "MODEL_IN_USE");
  EXPECT_TRUE(create(other, "odd-one", &model).ok());
  request.mutable_spec()->mutable_recipe()->mutable_initial_weights()->set_model("odd-one");
  request.set_job_id("none");
  EXPECT_EQ(reason_of(submit(request, &job)), "INITIAL_WEIGHTS_MISMATCH");
  request.mutable_spec()->mutable_recipe()->mutable_initial_weights()->set_job("odd-one");
  request.mutable_spec()->mutable_recipe()->mutable_initial_weights()->clear_model();
  EXPECT_EQ(reason_of(submit(request, &job)), "MODEL_NOT_FOUND");
  request.mutable_spec()->mutable_recipe()->mutable_initial_weights()->clear_job();
  request.mutable_spec()->mutable_recipe()->mutable_initial_weights()->set_path("/etc/passwd");
  EXPECT_EQ(reason_of(submit(request, &job)), "FIELD_UNSUPPORTED");

  v1::PredictRequest predict;
  predict.set_name(remove.name());
  predict.set_csv("1");
  v1::PredictResponse predicted;
  EXPECT_EQ(reason_of(models_->Predict(context().get(), predict, &predicted)),
            "PREDICT_UNSUPPORTED");
  ASSERT_TRUE(cancel("tuned", &job).ok());
  wait_for("tuned", v1::CANCELLED);
  const std::filesystem::path stored = config_.state_dir / "uploads" / sha256_hex(weights);
  EXPECT_TRUE(models_->DeleteModel(context().get(), remove, &empty).ok());
  EXPECT_TRUE(std::filesystem::exists(stored)) << "another model is made of it";
  remove.set_name("projects/default/models/w-" + sha256_hex(weights).substr(0, 16));
  EXPECT_TRUE(models_->DeleteModel(context().get(), remove, &empty).ok());
  EXPECT_FALSE(std::filesystem::exists(stored));
  stop();
  start();  // the remaining models survive a restart
  v1::GetModelRequest get;
  get.set_name("projects/default/models/odd-one");
  ASSERT_TRUE(models_->GetModel(context().get(), get, &model).ok());
  EXPECT_EQ(model.tensors(0).name(), "odd.weight");
}

TEST_F(ServiceApi, SystemInfoListsDevicesAndTheServer) {
  v1::ServerInfo info;
  ASSERT_TRUE(system_->GetServerInfo(context().get(), {}, &info).ok());
  EXPECT_EQ(info.version(), TRAINYARD_VERSION);
  EXPECT_EQ(info.message_bytes_max(), 4 << 20);
  v1::ListDevicesResponse devices;
  ASSERT_TRUE(system_->ListDevices(context().get(), {}, &devices).ok());
  ASSERT_EQ(devices.devices_size(), 1);
  EXPECT_EQ(devices.devices(0).name(), "devices/cpu");
  EXPECT_EQ(devices.note(), "no GPU in this test");
}

TEST_F(ServiceApi, TheSocketIsPrivateToItsOwner) {
  struct stat st {};
  ASSERT_EQ(::stat(config_.socket.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat((config_.state_dir / "worker.sock").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
}

TEST_F(ServiceApi, F24ASecondDaemonOnTheSameStateIsRefusedByPid) {
  const Result<std::unique_ptr<Daemon>> second = Daemon::start(config_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().reason, "STATE_DIR_LOCKED");
  EXPECT_NE(second.error().message.find(std::to_string(::getpid())), std::string::npos);
}

TEST_F(ServiceApi, APortInUseGivesOneMessage) {
  stop();
  config_.listen = "127.0.0.1:0";
  start();
  const int port = daemon_->port();
  ASSERT_GT(port, 0);
  Config other = config_;
  other.state_dir = root_ / "other";
  other.socket = root_ / "other.sock";
  other.listen = "127.0.0.1:" + std::to_string(port);
  const Result<std::unique_ptr<Daemon>> second = Daemon::start(other);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().reason, "ADDRESS_IN_USE");
  other.listen = "";
  other.socket = config_.socket;
  const Result<std::unique_ptr<Daemon>> third = Daemon::start(other);
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(third.error().reason, "ADDRESS_IN_USE") << "a served socket is not taken over";
}

TEST_F(ServiceApi, OnTcpEveryMethodRequiresTheToken) {
  stop();
  std::filesystem::create_directories(root_);
  std::ofstream(root_ / "token") << "0123456789abcdef0123\n";
  std::filesystem::permissions(root_ / "token", std::filesystem::perms::owner_read);
  config_.token_file = root_ / "token";
  config_.listen = "127.0.0.1:0";
  start();
  connect("127.0.0.1:" + std::to_string(daemon_->port()));
  for (const char* method : {"JobService/SubmitJob", "DatasetService/GetUpload",
                             "ModelService/Predict", "SystemService/GetServerInfo"}) {
    const grpc::Status s = call_raw(std::string("/trainyard.v1.") + method, "\x0a\x7fxx");
    EXPECT_EQ(s.error_code(), grpc::StatusCode::UNAUTHENTICATED) << method;
    EXPECT_EQ(reason_of(s), "CREDENTIALS_MISSING") << method;
  }
  grpc::Status end;
  v1::Upload up;
  EXPECT_EQ(reason_of(upload("content", &up)), "CREDENTIALS_MISSING");
  auto backup_context = context();
  auto backup = system_->Backup(backup_context.get(), {});
  v1::BackupResponse file;
  EXPECT_FALSE(backup->Read(&file));
  EXPECT_EQ(reason_of(backup->Finish()), "CREDENTIALS_MISSING");
  auto watch_context = context();
  auto stream = jobs_->WatchJob(watch_context.get(), {});
  v1::WatchJobResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(reason_of(stream->Finish()), "CREDENTIALS_MISSING");
  auto download_context = context();
  auto download = models_->DownloadModel(download_context.get(), {});
  v1::DownloadModelResponse part;
  EXPECT_FALSE(download->Read(&part));
  EXPECT_EQ(reason_of(download->Finish()), "CREDENTIALS_MISSING");
  auto generate_context = context();
  auto generate = models_->Generate(generate_context.get(), {});
  v1::GenerateResponse piece;
  EXPECT_FALSE(generate->Read(&piece));
  EXPECT_EQ(reason_of(generate->Finish()), "CREDENTIALS_MISSING");

  v1::ServerInfo info;
  auto wrong = context();
  wrong->AddMetadata("authorization", "Bearer 0123456789abcdef0124");
  EXPECT_EQ(reason_of(system_->GetServerInfo(wrong.get(), {}, &info)), "CREDENTIALS_INVALID");
  auto right = context();
  right->AddMetadata("authorization", "Bearer 0123456789abcdef0123");
  EXPECT_TRUE(system_->GetServerInfo(right.get(), {}, &info).ok());
  connect("unix:" + config_.socket.string());
  EXPECT_TRUE(system_->GetServerInfo(context().get(), {}, &info).ok()) << "the file mode suffices";
}

TEST_F(ServiceApi, OverTlsOnlyHealthNeedsNoToken) {
  stop();
  std::filesystem::create_directories(root_);
  std::ofstream(root_ / "token") << "0123456789abcdef0123\n";
  std::filesystem::permissions(root_ / "token", std::filesystem::perms::owner_read);
  config_.token_file = root_ / "token";
  config_.tls_certificate = root_ / "server.crt";
  config_.tls_key = root_ / "server.key";
  make_certificate(config_.tls_certificate, config_.tls_key);
  std::filesystem::permissions(config_.tls_key, std::filesystem::perms::owner_read);
  config_.listen = "127.0.0.1:0";
  start();
  const std::string target = "127.0.0.1:" + std::to_string(daemon_->port());
  connect(target);  // a plaintext connection to the TLS port
  EXPECT_EQ(call_raw("/trainyard.v1.SystemService/GetServerInfo", "").error_code(),
            grpc::StatusCode::UNAVAILABLE);
  grpc::SslCredentialsOptions trust;
  std::ifstream pem(config_.tls_certificate);
  trust.pem_root_certs.assign(std::istreambuf_iterator<char>(pem), {});
  channel_ = grpc::CreateChannel(target, grpc::SslCredentials(trust));
  system_ = v1::SystemService::NewStub(channel_);
  EXPECT_TRUE(call_raw("/grpc.health.v1.Health/Check", "").ok());
  EXPECT_EQ(call_raw("/no.such.Service/Method", "").error_code(), grpc::StatusCode::UNAUTHENTICATED)
      << "denied by default";
  EXPECT_EQ(reason_of(call_raw("/trainyard.v1.SystemService/GetServerInfo", "")),
            "CREDENTIALS_MISSING");
  v1::ServerInfo info;
  auto right = context();
  right->AddMetadata("authorization", "Bearer 0123456789abcdef0123");
  const grpc::Status s = system_->GetServerInfo(right.get(), {}, &info);
  EXPECT_TRUE(s.ok()) << s.error_message();

  // New files take effect without a restart, for new connections; this one stays.
  std::filesystem::remove(config_.tls_key);
  make_certificate(config_.tls_certificate, config_.tls_key);
  std::filesystem::permissions(config_.tls_key, std::filesystem::perms::owner_read);
  std::ifstream renewed(config_.tls_certificate);
  trust.pem_root_certs.assign(std::istreambuf_iterator<char>(renewed), {});
  grpc::ChannelArguments arguments;
  arguments.SetInt("grpc.use_local_subchannel_pool", 1);
  EXPECT_TRUE(eventually([&] {
    const auto channel = grpc::CreateCustomChannel(target, grpc::SslCredentials(trust), arguments);
    return channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(2));
  }));
  EXPECT_TRUE(call_raw("/grpc.health.v1.Health/Check", "").ok());
}

TEST_F(ServiceApi, ACertificateIsOpenedWithItsKeyByTheCheckAndAtTheStart) {
  stop();
  std::filesystem::create_directories(root_);
  std::ofstream(root_ / "token") << "0123456789abcdef0123\n";
  std::filesystem::permissions(root_ / "token", std::filesystem::perms::owner_read);
  config_.token_file = root_ / "token";
  config_.tls_certificate = root_ / "server.crt";
  config_.tls_key = root_ / "server.key";
  config_.listen = "127.0.0.1:0";
  constexpr auto kOwnerOnly =
      std::filesystem::perms::owner_read | std::filesystem::perms::owner_write;
  const auto refusal = [&] {
    const Result<std::unique_ptr<Daemon>> daemon = Daemon::start(config_);
    EXPECT_FALSE(daemon.ok());
    const std::string started = daemon.ok() ? "" : daemon.error().message;
    std::string lines;
    const Result<bool> sound = check_installation(
        config_, [&](const std::string& line) { lines += line + "\n"; }, [](const std::string&) {});
    EXPECT_FALSE(sound.ok()) << lines;
    EXPECT_EQ(sound.ok() ? std::string() : sound.error().message, started);
    return started;
  };
  EXPECT_FALSE(refusal().empty()) << "a file is missing";
  make_certificate(config_.tls_certificate, root_ / "other.key");
  make_certificate(root_ / "other.crt", config_.tls_key);
  std::filesystem::permissions(config_.tls_key, kOwnerOnly);
  const std::string mismatch = refusal();
  EXPECT_TRUE(mismatch.starts_with("tls_key: " + config_.tls_key.string() +
                                   " is not the key of the first certificate in " +
                                   config_.tls_certificate.string() + " (CN = localhost, until "))
      << mismatch;
  std::ofstream(config_.tls_key) << "no key\n";
  EXPECT_NE(refusal().find("has no private key in PEM"), std::string::npos);
  make_certificate(config_.tls_certificate, config_.tls_key, -60);
  std::filesystem::permissions(config_.tls_key, kOwnerOnly);
  start();  // an expired certificate keeps nobody on this host from the socket
  std::string lines;
  stop();
  ASSERT_TRUE(check_installation(
                  config_, [&](const std::string& line) { lines += line + "\n"; },
                  [](const std::string&) {})
                  .ok());
  EXPECT_NE(lines.find("tls      ok  CN = localhost"), std::string::npos) << lines;
  EXPECT_NE(lines.find("tls      warning  the certificate of tls_certificate expired"),
            std::string::npos)
      << lines;
}

// The acceptor (server/rpc/acceptor.h) accepts connections and passes them to gRPC. If this loses
// the server's arguments, the connections have no limits.
TEST_F(ServiceApi, AcceptedConnectionsShareTheQuotaOfTheServer) {
  const auto call_large = [&] {
    return call_raw("/trainyard.v1.JobService/GetJob", std::string(3 << 20, 'x'));
  };
  EXPECT_EQ(reason_of(call_large()), "REQUEST_TOO_LARGE")
      << "it was read, and its elements counted";
  stop();
  config_.listen = "127.0.0.1:0";
  change_parts_ = [](DaemonParts& parts) { parts.connections.transport_bytes_max = 64 << 10; };
  start();
  for (const std::string& target :
       {"unix:" + config_.socket.string(), "127.0.0.1:" + std::to_string(daemon_->port())}) {
    SCOPED_TRACE(target);
    connect(target);
    const grpc::Status s = call_large();
    EXPECT_EQ(s.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << s.error_message();
    EXPECT_EQ(s.error_details(), "") << "by the transport: " << s.error_message();
  }
}

TEST_F(ServiceApi, ResponsesNeverContainPathsOfTheServer) {
  make_dataset();
  std::filesystem::remove_all(config_.state_dir / "datasets" / dataset_.digest());
  v1::Job job;
  const grpc::Status s = submit(job_request("on-lost-files", ""), &job);
  EXPECT_EQ(s.error_code(), grpc::StatusCode::UNAVAILABLE) << "they may be back";
  EXPECT_EQ(reason_of(s), "STORAGE_ERROR");
  EXPECT_EQ(s.error_message().find(config_.state_dir.string()), std::string::npos)
      << s.error_message();
}

}  // namespace
}  // namespace trainyard::server
