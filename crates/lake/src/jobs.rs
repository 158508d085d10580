//! The jobs of a scheduler. A job whose work was repeated fails.
//!
//! If an executor is lost, Ballista 55.0 runs the stages again whose input was lost. What their tasks
//! on other executors had already written is read too, so that rows count twice. This was observed
//! whenever an executor was killed while a later stage of a join ran.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use ballista_core::error::Result;
use ballista_core::serde::protobuf::JobStatus;
use ballista_core::serde::protobuf::failed_task::FailedReason;
use ballista_core::serde::protobuf::job_status;
use ballista_core::serde::protobuf::task_status;
use ballista_core::{JobId, JobStatusSubscriber};
use ballista_scheduler::cluster::{JobState, JobStateEventStream};
use ballista_scheduler::state::execution_graph::ExecutionGraphBox;
use ballista_scheduler::state::execution_stage::ExecutionStage;
use datafusion::prelude::{SessionConfig, SessionContext};

/// Jobs of which none succeeds if its work was repeated.
pub struct Jobs(pub Arc<dyn JobState>);

/// The error of a job whose work was repeated.
const LOST: &str =
    "an executor was lost while it worked on the query, so the answer is not certain; repeat the query";

/// Whether a stage of a job ran again, or a task was lost.
fn was_repeated(graph: &ExecutionGraphBox) -> bool {
    graph.stages().values().any(|stage| {
        let ExecutionStage::Successful(stage) = stage else { return true };
        let was_lost = |status: &task_status::Status| {
            let task_status::Status::Failed(task) = status else { return false };
            matches!(task.failed_reason, Some(FailedReason::ResultLost(_) | FailedReason::ExecutorLost(_)))
        };
        stage.stage_attempt_num > 0 || stage.task_infos.iter().any(|task| was_lost(&task.task_status))
    })
}

#[async_trait]
impl JobState for Jobs {
    // Subscribers get the last state of a job from here.
    async fn save_job(&self, job_id: &JobId, graph: &ExecutionGraphBox) -> Result<()> {
        if matches!(graph.status().status, Some(job_status::Status::Successful(_))) && was_repeated(graph) {
            let mut failed = graph.cloned();
            failed.fail_job(LOST.to_owned());
            return self.0.save_job(job_id, &failed).await;
        }
        self.0.save_job(job_id, graph).await
    }

    fn accept_job(&self, job_id: &JobId, job_name: &str, queued_at: u64) -> Result<()> {
        self.0.accept_job(job_id, job_name, queued_at)
    }

    fn pending_job_number(&self) -> usize {
        self.0.pending_job_number()
    }

    async fn submit_job(
        &self,
        job_id: JobId,
        graph: &ExecutionGraphBox,
        subscriber: Option<JobStatusSubscriber>,
    ) -> Result<()> {
        self.0.submit_job(job_id, graph, subscriber).await
    }

    async fn get_jobs(&self) -> Result<HashSet<JobId>> {
        self.0.get_jobs().await
    }

    async fn get_all_jobs(&self) -> Result<HashSet<JobId>> {
        self.0.get_all_jobs().await
    }

    async fn get_job_status(&self, job_id: &JobId) -> Result<Option<JobStatus>> {
        self.0.get_job_status(job_id).await
    }

    async fn get_execution_graph(&self, job_id: &JobId) -> Result<Option<ExecutionGraphBox>> {
        self.0.get_execution_graph(job_id).await
    }

    async fn fail_unscheduled_job(&self, job_id: &JobId, reason: String) -> Result<()> {
        self.0.fail_unscheduled_job(job_id, reason).await
    }

    async fn remove_job(&self, job_id: &JobId) -> Result<()> {
        self.0.remove_job(job_id).await
    }

    async fn try_acquire_job(&self, job_id: &JobId) -> Result<Option<ExecutionGraphBox>> {
        self.0.try_acquire_job(job_id).await
    }

    async fn job_state_events(&self) -> Result<JobStateEventStream> {
        self.0.job_state_events().await
    }

    async fn create_or_update_session(
        &self,
        session_id: &str,
        config: &SessionConfig,
    ) -> Result<Arc<SessionContext>> {
        self.0.create_or_update_session(session_id, config).await
    }

    async fn remove_session(&self, session_id: &str) -> Result<()> {
        self.0.remove_session(session_id).await
    }

    fn produce_config(&self) -> SessionConfig {
        self.0.produce_config()
    }
}
