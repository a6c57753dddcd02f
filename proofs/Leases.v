(** Leases. A process is granted units in bulk and uses them later, each at most once.

    A lease of [l] is a grant of [c] units at [T] with the uses that it pays for: at most [c] units, each
    used at some time in [T .. T + l]. Units that are never used, because an answer was lost or a
    process died, are uses that are missing. A check without a lease is a grant that is used at [T].

    The grants are a legal history of the quota by which the store counts. Then the uses keep the
    bound of the quota without a lease:

    - logs and buckets, counted over [W + l]: at most [L] in any window [W],
    - token bucket, counted against [burst - ceil(L l / W)]: at most [burst + L],
    - fixed window and sliding counter, used within the period of the grant: at most [2 L], [2 L - 1].

    [the_end_by_the_clock_of_the_holder] says why a process that knows only its own clock keeps to [l]. *)

From Proofs Require Import
  Machine Arithmetic Ring SlidingLog SlidingBuckets TokenBucket FixedWindow SlidingCounter.

Definition lease : Type := (Z * Z) * history.

Definition grants (leases : list lease) : history := map fst leases.
Definition uses (leases : list lease) : history := flat_map snd leases.

(** Each lease is used when [allowed] lets it, and for no more than its units. *)
Definition kept (allowed : Z -> Z -> Prop) (leases : list lease) : Prop :=
  Forall (fun '((T, c), used) =>
    Forall (fun '(u, k) => allowed T u /\ 0 <= k) used /\ units (fun _ => true) used <= c) leases.

Lemma units_app : forall accepts a b, units accepts (a ++ b) = units accepts a + units accepts b.
Proof. induction a as [|[t c] a IH]; cbn; intros; [lia|]. rewrite IH. lia. Qed.

Lemma some_of_all : forall accepts (allowed : Z -> Z -> Prop) T used, Forall (fun '(u, k) => allowed T u /\ 0 <= k) used ->
  0 <= units accepts used <= units (fun _ => true) used.
Proof.
  intros accepts allowed T used H. induction H as [|[u k] used [_ Hk] _ IH]; cbn; [lia|].
  destruct (accepts u); lia.
Qed.

Lemma used_were_granted : forall m (allowed : Z -> Z -> Prop) a b leases,
  (forall T u, allowed T u -> a u = true -> b T = true) ->
  legal m (grants leases) -> kept allowed leases ->
  units a (uses leases) <= units b (grants leases).
Proof.
  intros m allowed a b leases Hab. induction leases as [|[[T c] used] leases IH]; cbn; [lia|].
  fold (grants leases) (uses leases). intros (Hg & _ & Hc) Hk. inversion Hk as [|? ? P Hk']; subst. cbn in P. destruct P as [Hu Hs].
  specialize (IH Hg Hk'). rewrite units_app.
  pose proof (some_of_all a allowed T used Hu). destruct (b T) eqn:E; [lia|].
  (* A grant outside the time has no use in it. *)
  assert (units a used = 0); [|lia].
  apply units_none. eapply Forall_impl; [|exact Hu]. intros [u k] [Hau _]. cbn.
  destruct (a u) eqn:Ea; [|reflexivity]. rewrite (Hab _ _ Hau Ea) in E. discriminate.
Qed.

(** Within a time after the grant, by the time of the store. *)
Definition for_time (l T u : Z) : Prop := T <= u <= T + l.
(** Within the period that counted the grant. *)
Definition in_period (W T u : Z) : Prop := T <= u /\ u / W = T / W.

Lemma used_in_a_longer_window : forall l W x T u, for_time l T u ->
  within (x - W) x u = true -> within (x - (W + l)) x T = true.
Proof. unfold for_time, within. intros. lia. Qed.

Section Leases.
Variables L W l : Z.
Hypothesis limit_positive : 0 < L.
Hypothesis window_positive : 0 < W.
Hypothesis lease_not_negative : 0 <= l.

Theorem leased_sliding_log : forall leases x,
  legal (sliding_log L (W + l)) (grants leases) -> kept (for_time l) leases ->
  units (within (x - W) x) (uses leases) <= L.
Proof.
  intros leases x Hg Hk.
  pose proof (used_were_granted _ _ _ _ _ (used_in_a_longer_window l W x) Hg Hk).
  pose proof (sliding_log_bound L (W + l) limit_positive ltac:(lia) _ x Hg). lia.
Qed.

Theorem leased_sliding_buckets : forall n leases x, 0 < n ->
  legal (sliding_buckets L (W + l) n) (grants leases) -> kept (for_time l) leases ->
  units (within (x - W) x) (uses leases) <= L.
Proof.
  intros n leases x Hn Hg Hk.
  pose proof (used_were_granted _ _ _ _ _ (used_in_a_longer_window l W x) Hg Hk).
  pose proof (sliding_buckets_bound L (W + l) n limit_positive ltac:(lia) Hn _ x Hg). lia.
Qed.

Theorem leased_token_bucket : forall burst leases x, 0 < burst - ceiling (L * l) W ->
  legal (token_bucket L W (burst - ceiling (L * l) W)) (grants leases) -> kept (for_time l) leases ->
  units (within (x - W) x) (uses leases) <= burst + L.
Proof.
  intros burst leases x Hb Hg Hk.
  pose proof (used_were_granted _ _ _ _ _ (used_in_a_longer_window l W x) Hg Hk).
  pose proof (token_bucket_bound_of_any_time L W _ limit_positive window_positive Hb (W + l)
    ltac:(lia) _ x Hg).
  assert (L * (W + l - 1) / W <= L + ceiling (L * l) W).
  { pose proof (ceiling_ge (L * l) W window_positive). apply Z.div_le_upper_bound; nia. }
  lia.
Qed.

Lemma used_in_the_periods_of_the_grants : forall x T u, in_period W T u ->
  within (x - W) x u = true ->
  (fun t => of_period W (x / W - 1) t || of_period W (x / W) t) T = true.
Proof.
  intros x T u [_ E] Hu. apply orb_true_iff. unfold of_period. rewrite <- E.
  exact (window_meets_two_periods W window_positive x u Hu).
Qed.

Lemma units_or : forall m a b h, legal m h ->
  units (fun t => a t || b t) h <= units a h + units b h.
Proof. intros. apply (units_cover m); [assumption|]. intros t. apply orb_true_iff. Qed.

Theorem leased_fixed_window : forall leases x,
  legal (fixed_window L W) (grants leases) -> kept (in_period W) leases ->
  units (within (x - W) x) (uses leases) <= 2 * L.
Proof.
  intros leases x Hg Hk.
  pose proof (used_were_granted _ _ _ _ _ (used_in_the_periods_of_the_grants x) Hg Hk).
  pose proof (units_or _ (of_period W (x / W - 1)) (of_period W (x / W)) _ Hg).
  pose proof (a_period_has_at_most_the_limit L W limit_positive window_positive _ (x / W - 1) Hg).
  pose proof (a_period_has_at_most_the_limit L W limit_positive window_positive _ (x / W) Hg). lia.
Qed.

Theorem leased_sliding_counter : forall leases x,
  legal (sliding_counter L W) (grants leases) -> kept (in_period W) leases ->
  units (within (x - W) x) (uses leases) <= 2 * L - 1.
Proof.
  intros leases x Hg Hk.
  pose proof (used_were_granted _ _ _ _ _ (used_in_the_periods_of_the_grants x) Hg Hk).
  pose proof (units_or _ (of_period W (x / W - 1)) (of_period W (x / W)) _ Hg).
  pose proof (two_periods_have_at_most_2L_minus_1 L W limit_positive window_positive _ (x / W) Hg).
  lia.
Qed.
End Leases.

(** The units of a grant: at least the cost, at most half of what is free beyond it. *)
Definition granted (free cost most : Z) : Z :=
  if cost <=? free then Z.max cost (Z.min most (cost + (free - cost) / 2)) else 0.

Theorem a_grant_is_free : forall free cost most, 0 < cost -> cost <= free ->
  cost <= granted free cost most <= free.
Proof.
  intros. unfold granted. replace (cost <=? free) with true by (symmetry; lia).
  pose proof (Z.div_mod (free - cost) 2 ltac:(lia)).
  pose proof (Z.mod_pos_bound (free - cost) 2 ltac:(lia)). lia.
Qed.

(** The holder reads its clock before it sends the request, at time [s] of the store: [read_s]. It uses a
    unit at time [u] only if its clock then reads at most [1000 / 1001] of [l] more. Its clock is
    at most a thousandth slower than the clock of the store. So the unit is used before the lease ends, which
    was granted at [T], after the request was sent. *)
Theorem the_end_by_the_clock_of_the_holder : forall l s T u read_s read_u,
  s <= T -> T <= u ->
  (u - s) * 1000 <= (read_u - read_s) * 1001 ->
  (read_u - read_s) * 1001 <= l * 1000 ->
  for_time l T u.
Proof. unfold for_time. intros. lia. Qed.

(** Under a windowed algorithm, the lease ends with the period at the latest. *)
Theorem the_end_of_the_period_by_the_clock_of_the_holder : forall W s T u read_s read_u, 0 < W ->
  s <= T -> T <= u ->
  (u - s) * 1000 <= (read_u - read_s) * 1001 ->
  (read_u - read_s) * 1001 < (W - T mod W) * 1000 ->
  in_period W T u.
Proof.
  intros W s T u read_s read_u HW Hs Hu Hr He. split; [assumption|].
  pose proof (Z.div_mod T W ltac:(lia)). pose proof (Z.mod_pos_bound T W HW).
  pose proof (Z.div_le_mono T u W ltac:(lia) Hu). pose proof (floor_lt u W (T / W + 1) HW). lia.
Qed.
