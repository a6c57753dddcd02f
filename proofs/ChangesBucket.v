(** Token bucket under changes and refunds. The model of [src/algorithm/token_bucket.rs] and
    [lua/token_bucket.lua].

    [changing_bucket_bound] is the promise: from a change on, no window has more than [burst + L] net units,
    if refunds are [in_turn]. [a_bucket_refunds_what_is_left] says what a refund gives back, in any order.

    The reason: as in TokenBucket.v, and a mark says what is owed before a charge. *)

From Proofs Require Import Changes.

(** [owed] units, less [credited / rate_window] of one, at the time of the last charge, whose rate is
    [rate_limit] in [rate_window]. *)
Record bucket := Bucket { owed : Z; credited : Z; since : Z; rate_limit : Z; rate_window : Z }.

(** True if a rate (limit, window) exceeds another. *)
Definition is_faster (a b : Z * Z) : bool := fst b * snd a <? fst a * snd b.

(** The rate since the last charge, and the credit in its units: the faster of the old and the new. *)
Definition rate (q : quota) (s : bucket) : Z * Z * Z :=
  if is_faster (rate_limit s, rate_window s) (limit q, window q)
  then (rate_limit s, rate_window s, credited s)
  else if (rate_limit s =? limit q) && (rate_window s =? window q)
  then (limit q, window q, credited s)
  else (limit q, window q, if rate_window s =? 0 then 0 else credited s * window q / rate_window s).

(** The debt at a time, and its credit in the units of the rate. *)
Definition judge (q : quota) (s : bucket) (now : Z) : Z * Z :=
  let '(l, w, credit) := rate q s in
  let paid := ((now - since s) * l + credit) / w in
  let rest := ((now - since s) * l + credit) mod w in
  if paid <? owed s then (owed s - paid, rest) else (0, 0).

Definition bucket_charge (q : quota) (s : bucket) (now c : Z) : bucket * mark :=
  let '(_, w, _) := rate q s in
  let (d, r) := judge q s now in
  let credit := if w =? window q then r else r * window q / w in
  let debt := Z.min (d + c) (parameter q + limit q) in
  (Bucket debt credit now (limit q) (window q), (now, debt, credit)).

(** The fastest of the rates that are known: of the charge, of the last charge, and of now. *)
Definition fastest (r : receipt) (q : quota) (s : bucket) : Z * Z :=
  let faster a b := if is_faster b a then b else a in
  faster (faster (limit (charged_under r), window (charged_under r)) (rate_limit s, rate_window s))
    (limit q, window q).

(** The units of a charge that the refill since then has not paid. Debts are paid in the order in which
    they were made. *)
Definition unpaid (r : receipt) (q : quota) (s : bucket) (now : Z) : Z :=
  let '(time, debt, credit) := left_mark r in
  let (l, w) := fastest r q s in
  let credit := ceiling (credit * w) (window (charged_under r)) in
  Z.max 0 (debt - ceiling (Z.max 0 (now - time) * l + credit) w).

Definition bucket_refund (q : quota) (s : bucket) (now : Z) (r : receipt) (u : Z) : bucket * Z :=
  let (d, rest) := judge q s now in
  let outstanding := Z.max 0 (d - (if 0 <? rest then 1 else 0)) in
  let k := Z.min u (Z.min (unpaid r q s now) outstanding) in
  (Bucket (owed s - k) (credited s) (since s) (rate_limit s) (rate_window s), k).

Definition changing_bucket : limiter := {|
  kept := bucket;
  unused := Bucket 0 0 0 0 0;
  most_free := parameter;
  free_under q s now := Z.max 0 (parameter q - fst (judge q s now));
  charge_under := bucket_charge;
  wait_under q s now c :=
    let '(l, w, _) := rate q s in
    let (d, r) := judge q s now in
    if d <=? parameter q - c then 0 else ceiling ((d - (parameter q - c)) * w - r) l;
  refund_under := bucket_refund
|}.

(** A start is any state: a debt, less a part of a unit. *)
Definition is_sound (s : bucket) : Prop :=
  0 <= owed s /\ 0 <= credited s /\ 0 <= rate_limit s /\
  (rate_window s = 0 /\ rate_limit s = 0 /\ credited s = 0 \/ credited s < rate_window s).

(** The rate since the last charge has a window, and its credit is less than a unit. *)
Lemma rate_is_sound : forall q s, valid_quota q -> is_sound s ->
  let '(l, w, c) := rate q s in 0 < l /\ 0 < w /\ 0 <= c < w.
Proof.
  intros q s (HL & HW & _) (Ho & Hc & Hl & Hw). unfold rate, is_faster. cbn.
  destruct (Z.ltb_spec (limit q * rate_window s) (rate_limit s * window q)) as [F|F];
    [assert (0 < rate_window s) by nia; assert (0 < rate_limit s) by nia; lia|].
  destruct (_ && _) eqn:Eq; [apply andb_prop in Eq as [E1 E2]; lia|].
  destruct (Z.eqb_spec (rate_window s) 0); [lia|].
  assert (0 < rate_window s) by lia. repeat split; try assumption.
  - apply Z.div_pos; nia.
  - apply Z.div_lt_upper_bound; nia.
Qed.

Lemma judge_is_sound : forall q s t, valid_quota q -> is_sound s -> since s <= t ->
  let '(l, w, _) := rate q s in let (d, r) := judge q s t in
  0 <= r < w /\ 0 <= d <= owed s /\ (d = 0 -> r = 0).
Proof.
  intros q s t Hq Hs Ht. pose proof (rate_is_sound q s Hq Hs) as R. unfold judge.
  destruct (rate q s) as [[l w] c]. destruct R as (Rl & Rw & Rc). destruct Hs as (Ho & _).
  pose proof (Z.div_pos ((t - since s) * l + c) w ltac:(nia) Rw).
  pose proof (Z.mod_pos_bound ((t - since s) * l + c) w Rw).
  destruct (Z.ltb_spec (((t - since s) * l + c) / w) (owed s)); lia.
Qed.

Theorem a_bucket_refunds_within : forall q s t r u s' k, 0 <= u ->
  bucket_refund q s t r u = (s', k) -> 0 <= k <= u.
Proof.
  intros q s t r u s' k Hu. unfold bucket_refund. destruct (judge q s t) as [d rest].
  unfold unpaid. destruct (left_mark r) as [[a b] c]. destruct (fastest r q s). intros E. inversion E. lia.
Qed.

(** A refund never leaves a debt below zero. *)
Theorem a_bucket_refunds_no_more_than_is_owed : forall q s t r u s' k, valid_quota q -> is_sound s ->
  since s <= t -> 0 <= u -> bucket_refund q s t r u = (s', k) ->
  is_sound s' /\ owed s' = owed s - k /\ since s' = since s.
Proof.
  intros q s t r u s' k Hq Hs Ht Hu E. pose proof (a_bucket_refunds_within q s t r u s' k Hu E) as K.
  pose proof (judge_is_sound q s t Hq Hs Ht) as J. unfold bucket_refund in E.
  destruct (rate q s) as [[l w] c]. destruct (judge q s t) as [d rest]. destruct J as (J1 & J2 & _).
  destruct Hs as (Ho & Hc & Hl & Hw).
  inversion E; subst s'. repeat split; cbn; auto; destruct (0 <? rest); lia.
Qed.

(** The rate by which a refund judges is no slower than the rate of its charge. *)
Lemma faster_of_two : forall a b c d e f : Z, 0 < a -> 0 < b -> 0 <= c -> 0 <= d ->
  (d = 0 -> c = 0) -> 0 < e -> 0 < f ->
  e * b <= a * f ->
  let (l, w) := if is_faster (c, d) (a, b) then (c, d) else (a, b) in
  0 < l /\ 0 < w /\ e * w <= l * f.
Proof.
  intros a b c d e f Ha Hb Hc Hd Hu He Hf H. unfold is_faster. cbn.
  destruct (Z.ltb_spec (a * d) (c * b)) as [F|F]; [|auto].
  assert (0 < c) by nia. assert (0 < d) by lia. repeat split; try lia.
  (* e / f <= a / b < c / d. *)
  assert (e * d * b <= c * f * b) by nia. nia.
Qed.

Lemma fastest_is_faster : forall r q s, valid_quota (charged_under r) -> valid_quota q -> is_sound s ->
  let (l, w) := fastest r q s in
  0 < l /\ 0 < w /\ limit (charged_under r) * w <= l * window (charged_under r).
Proof.
  intros r q s (CL & CW & _) (QL & QW & _) (_ & Hcr & Hl & Hw). unfold fastest.
  pose proof (faster_of_two (limit (charged_under r)) (window (charged_under r)) (rate_limit s)
    (rate_window s) (limit (charged_under r)) (window (charged_under r))
    CL CW Hl ltac:(lia) ltac:(lia) CL CW ltac:(lia)) as F.
  destruct (if is_faster _ _ then _ else _) as [a b]. destruct F as (Fa & Fb & F).
  exact (faster_of_two a b (limit q) (window q) _ _ Fa Fb ltac:(lia) ltac:(lia) ltac:(lia) CL CW F).
Qed.

(** The exact debt that a charge left, in [1 / W] units. *)
Definition exact_mark (r : receipt) : Z :=
  let '(_, debt, credit) := left_mark r in debt * window (charged_under r) - credit.

(** A refund leaves the refill since its charge with the charge. *)
Theorem a_bucket_refunds_what_is_left : forall q s t r u s' k time debt credit,
  valid_quota (charged_under r) -> valid_quota q -> is_sound s -> left_mark r = (time, debt, credit) ->
  0 <= credit -> 0 <= u -> time <= t -> bucket_refund q s t r u = (s', k) -> 0 < k ->
  k * window (charged_under r) <= exact_mark r - limit (charged_under r) * (t - time).
Proof.
  intros q s t r u s' k time debt credit Hc Hq Hs M Hcr Hu Ht E Hk.
  pose proof (fastest_is_faster r q s Hc Hq Hs) as F. destruct Hc as (CL & CW & _).
  unfold bucket_refund in E. destruct (judge q s t) as [d rest]. unfold unpaid, exact_mark in *.
  rewrite M in *. destruct (fastest r q s) as [l w]. destruct F as (Fl & Fw & F).
  set (W := window (charged_under r)) in *. set (L := limit (charged_under r)) in *.
  rewrite (Z.max_r 0 (t - time)) in E by lia.
  pose proof (ceiling_ge (credit * w) W CW) as C1. set (cr := ceiling (credit * w) W) in *.
  pose proof (ceiling_ge ((t - time) * l + cr) w Fw) as C2.
  set (x := ceiling ((t - time) * l + cr) w) in *.
  assert (K : k <= debt - x) by (inversion E; lia). clear E.
  assert (X : (credit + L * (t - time)) * w <= x * W * w) by nia.
  assert (credit + L * (t - time) <= x * W) by nia. nia.
Qed.

(** Refunds in turn: after a refund, no charge that was made before it is refunded. So a mark says what is
    owed before a charge, as long as it can be refunded. *)
Definition given_up (l : list entry) : list entry :=
  map (fun e => Entry (from e) (at_time e) (net e) false) l.

Inductive in_turn (start : bucket) (begin : Z) : bucket -> list entry -> Z -> Prop :=
| TurnStarted : in_turn start begin start [] begin
| TurnCharged : forall s l now q t c s' mk,
    in_turn start begin s l now -> now <= t -> valid_quota q ->
    0 < c <= free_under changing_bucket q s t -> bucket_charge q s t c = (s', mk) ->
    in_turn start begin s' (Entry (Receipt q mk) t c true :: l) t
| TurnRefunded : forall s newer e older now q t u s' k,
    in_turn start begin s (newer ++ e :: older) now -> now <= t -> valid_quota q ->
    is_held e = true -> 0 <= u <= net e -> bucket_refund q s t (from e) u = (s', k) ->
    in_turn start begin s' (given_up newer ++ less e k :: given_up older) t.

Lemma nets_given_up : forall a l, nets a (given_up l) = nets a l.
Proof. intros a l. induction l as [|e l IH]; cbn; [trivial|]. f_equal. exact IH. Qed.

Lemma forall_given_up : forall (P : entry -> Prop) l,
  (forall e, P e -> P (Entry (from e) (at_time e) (net e) false)) -> Forall P l -> Forall P (given_up l).
Proof. intros P l H F. apply Forall_map. eapply Forall_impl; [|exact F]. exact H. Qed.

(** The newest entry first. *)
Fixpoint in_time (l : list entry) : Prop :=
  match l with [] => True | e :: older => Forall (fun o => at_time o <= at_time e) older /\ in_time older end.

Lemma in_time_turn : forall newer e older k, in_time (newer ++ e :: older) ->
  in_time (given_up newer ++ less e k :: given_up older).
Proof.
  assert (G : forall l, in_time l -> in_time (given_up l)).
  { induction l as [|e l IH]; cbn; [trivial|]. intros [H1 H2]. split; [|auto].
    apply forall_given_up; auto. }
  intros newer e older k. induction newer as [|n newer IH]; cbn; intros [H1 H2].
  - split; [|auto]. apply forall_given_up; auto.
  - split; [|auto]. apply Forall_app in H1 as [A B]. apply Forall_app. split;
      [apply forall_given_up; auto|].
    constructor; [exact (Forall_inv B)|]. apply forall_given_up; [auto|exact (Forall_inv_tail B)].
Qed.

Lemma older_is_not_newer : forall newer e older from, in_time (newer ++ e :: older) ->
  at_time e <= from -> nets (Machine.newer from) (e :: older) = 0.
Proof.
  intros newer e older from H Hf. assert (T : Forall (fun o => at_time o <= from) (e :: older)).
  { induction newer as [|n newer IH]; cbn in H; [|apply IH; apply H]. destruct H as [H _].
    constructor; [assumption|]. eapply Forall_impl; [|exact H]. cbn. intros. lia. }
  clear H Hf. induction T as [|o l Ho _ IH]; cbn; [trivial|]. unfold Machine.newer in *.
  replace (from <? at_time o) with false by (symmetry; lia). rewrite IH. reflexivity.
Qed.

Section InTurn.
Variable q : quota.
Hypothesis quota_is_valid : valid_quota q.
Notation L := (limit q).
Notation W := (window q).

Definition exact (s : bucket) : Z := owed s * W - credited s.

(** The debt is the rest of a charge, less the refill since, plus all later charges. *)
Fixpoint marks_hold (e_now t acc : Z) (l : list entry) : Prop :=
  match l with
  | [] => True
  | e :: older =>
      (is_held e = true ->
        exact_mark (from e) - L * (t - at_time e) + W * acc <= e_now /\
        exists debt credit, left_mark (from e) = (at_time e, debt, credit) /\ 0 <= credit) /\
      marks_hold e_now t (acc + net e) older
  end.

Lemma marks_hold_later : forall e_now t acc l e_later later c,
  e_now - L * (later - t) + W * c <= e_later ->
  marks_hold e_now t acc l -> marks_hold e_later later (acc + c) l.
Proof.
  intros e_now t acc l e_later later c He. revert acc. induction l as [|e l IH]; cbn; [trivial|].
  intros acc [H1 H2]. split.
  - intros Hh. destruct (H1 Hh) as [A B]. split; [lia|assumption].
  - replace (acc + c + net e) with (acc + net e + c) by lia. auto.
Qed.

Lemma marks_hold_given_up : forall e_now t acc l, marks_hold e_now t acc (given_up l).
Proof.
  intros e_now t acc l. revert acc. induction l as [|e l IH]; cbn; [trivial|].
  intros acc. split; [discriminate|auto].
Qed.

Lemma marks_hold_turn : forall e_now t acc newer e k older,
  marks_hold e_now t acc (given_up newer ++ less e k :: given_up older).
Proof.
  intros e_now t acc newer e k older. revert acc. induction newer as [|n newer IH]; cbn; intros acc;
    (split; [discriminate|auto using marks_hold_given_up]).
Qed.

Lemma mark_of : forall e_now t newer e older acc, marks_hold e_now t acc (newer ++ e :: older) ->
  is_held e = true ->
  exact_mark (from e) - L * (t - at_time e) + W * (acc + nets (fun _ => true) newer) <= e_now /\
  exists debt credit, left_mark (from e) = (at_time e, debt, credit) /\ 0 <= credit.
Proof.
  intros e_now t newer e older. induction newer as [|n newer IH]; cbn; intros acc [H1 H2] Hh.
  - rewrite Z.add_0_r. auto.
  - destruct (IH _ H2 Hh) as [A B]. split; [lia|assumption].
Qed.

Record owes (now : Z) (s : bucket) (l : list entry) : Prop := {
  owes_soundly : is_sound s;
  owes_since : since s <= now;
  owes_in_time : in_time l;
  owes_all : sound_ledger (since s) l;
  owes_at_rate : l <> [] -> rate_limit s = L /\ rate_window s = W /\ owed s <= parameter q;
  owes_what_was_charged : forall from, l <> [] -> from < since s ->
    nets (newer from) l * W <= exact s + L * (since s - from - 1);
  owes_by_marks : marks_hold (exact s) (since s) 0 l
}.

(** At its own rate, a debt shrinks by what is refilled, and no faster. *)
Lemma judge_pays : forall s t, is_sound s -> since s <= t -> rate_limit s = L -> rate_window s = W ->
  rate q s = (L, W, credited s) /\
  let (d, r) := judge q s t in exact s - L * (t - since s) <= d * W - r.
Proof.
  intros s t Hs Ht El Ew. assert (R : rate q s = (L, W, credited s)).
  { unfold rate, is_faster. cbn. rewrite El, Ew, Z.ltb_irrefl, !Z.eqb_refl. reflexivity. }
  split; [exact R|]. unfold judge. rewrite R. destruct quota_is_valid as (HL & HW & _).
  pose proof (Z.div_mod ((t - since s) * L + credited s) W ltac:(lia)).
  pose proof (Z.mod_pos_bound ((t - since s) * L + credited s) W HW). unfold exact.
  destruct (Z.ltb_spec (((t - since s) * L + credited s) / W) (owed s)); nia.
Qed.

Lemma a_charge_is_owed : forall now s l t c s' mk, owes now s l -> now <= t ->
  0 < c <= free_under changing_bucket q s t -> bucket_charge q s t c = (s', mk) ->
  owes t s' (Entry (Receipt q mk) t c true :: l).
Proof.
  intros now s l t c s' mk [O1 O2 O3 O4 O5 O6 O7] Ht Hc E.
  pose proof quota_is_valid as (HL & HW & _).
  pose proof (judge_is_sound q s t quota_is_valid O1 ltac:(lia)) as J. cbn in Hc.
  pose proof (rate_is_sound q s quota_is_valid O1) as R.
  assert (P : l <> [] -> let (d, r) := judge q s t in
    rate q s = (L, W, credited s) /\ exact s - L * (t - since s) <= d * W - r).
  { intros N. destruct (O5 N) as (El & Ew & _). destruct (judge_pays s t O1 ltac:(lia) El Ew).
    destruct (judge q s t). auto. }
  unfold bucket_charge in E. destruct (rate q s) as [[rl rw] rc]. destruct (judge q s t) as [d r].
  cbn in Hc. destruct J as (J1 & J2 & J3). destruct R as (R1 & R2 & _).
  set (cr := if rw =? W then r else r * W / rw) in *.
  assert (C : 0 <= cr < W /\ (d = 0 -> cr = 0)).
  { unfold cr. destruct (Z.eqb_spec rw W) as [<-|]; [lia|]. split.
    - split; [apply Z.div_pos; nia|apply Z.div_lt_upper_bound; nia].
    - intros D. rewrite (J3 D). apply Z.div_0_l. lia. }
  rewrite Z.min_l in E by lia. inversion E; subst s' mk.
  assert (D : 0 <= d * W - cr) by (destruct (Z.eqb_spec d 0); nia).
  assert (P' : l <> [] -> exact s - L * (t - since s) <= d * W - cr).
  { intros N. destruct (P N) as [Er Ep]. unfold cr. inversion Er. rewrite Z.eqb_refl. exact Ep. }
  split; cbn [since rate_limit rate_window owed exact].
  - unfold is_sound. cbn. lia.
  - lia.
  - split; [|assumption]. eapply Forall_impl; [|exact O4]. cbn. intros. lia.
  - constructor; [cbn; split; [lia|split; [lia|exact quota_is_valid]]|].
    apply (sound_later (since s)); [lia|assumption].
  - intros _. cbn. lia.
  - intros from _ Hf. unfold exact. cbn. unfold newer at 1.
    replace (from <? t) with true by (symmetry; lia).
    destruct l as [|e l]; [cbn; nia|]. specialize (P' ltac:(discriminate)).
    destruct (Z.ltb_spec from (since s)) as [F|F].
    + specialize (O6 from ltac:(discriminate) F). nia.
    + rewrite (nets_none _ (since s)) by (assumption || (unfold newer; intros; lia)). nia.
  - split.
    + intros _. unfold exact_mark, exact. cbn. split; [lia|].
      exists (d + c), cr. split; [reflexivity|lia].
    + destruct l as [|e l]; [exact I|].
      apply (marks_hold_later (exact s) (since s) 0 _ _ t c); [|assumption].
      specialize (P' ltac:(discriminate)). unfold exact in *. cbn. nia.
Qed.

Lemma a_refund_is_owed : forall now s newer e older q' t u s' k, owes now s (newer ++ e :: older) ->
  now <= t -> valid_quota q' -> entry_quota e = q -> is_held e = true -> 0 <= u <= net e ->
  bucket_refund q' s t (from e) u = (s', k) ->
  owes t s' (given_up newer ++ less e k :: given_up older).
Proof.
  intros now s newer e older q' t u s' k [O1 O2 O3 O4 O5 O6 O7] Ht Hq Qe Hh Hu E.
  pose proof quota_is_valid as (HL & HW & _).
  assert (N : newer ++ e :: older <> []) by (destruct newer; discriminate).
  destruct (a_bucket_refunds_no_more_than_is_owed q' s t (from e) u s' k Hq O1 ltac:(lia)
    ltac:(lia) E) as (S1 & S2 & S3).
  pose proof (a_bucket_refunds_within _ _ _ _ _ _ _ (proj1 Hu) E) as K.
  assert (S4 : credited s' = credited s /\ rate_limit s' = rate_limit s /\ rate_window s' = rate_window s).
  { unfold bucket_refund in E. destruct (judge q' s t). inversion E. auto. }
  destruct S4 as (S4 & S5 & S6). destruct (O5 N) as (P1 & P2 & P3).
  destruct (mark_of _ _ _ _ _ _ O7 Hh) as (M1 & debt & credit & M2 & M3).
  assert (Te : at_time e <= since s).
  { apply Forall_app in O4 as [_ O4]. exact (proj1 (Forall_inv O4)). }
  assert (S7 : sound_ledger (since s) (given_up newer ++ less e k :: given_up older)).
  { pose proof (sound_less _ newer e older k ltac:(lia) O4) as S.
    unfold sound_ledger in *. apply Forall_app in S as [A B]. apply Forall_app. split;
      [apply forall_given_up; auto|]. constructor; [exact (Forall_inv B)|].
    apply forall_given_up; [auto|exact (Forall_inv_tail B)]. }
  split; rewrite ?S3.
  - assumption.
  - lia.
  - apply in_time_turn. assumption.
  - assumption.
  - intros _. rewrite S5, S6. lia.
  - intros from0 _ Hf. unfold exact in *. rewrite S2, S4. specialize (O6 from0 N Hf).
    rewrite nets_app in *. rewrite nets_given_up. cbn [nets less at_time net] in *.
    rewrite nets_given_up.
    destruct (Z.ltb_spec 0 k) as [Kp|Kn]; [|destruct (Machine.newer from0 (at_time e)); nia].
    pose proof (a_bucket_refunds_what_is_left q' s t (from e) u s' k (at_time e) debt credit) as B.
    unfold entry_quota in Qe. rewrite Qe in B.
    specialize (B quota_is_valid Hq O1 M2 M3 (proj1 Hu) ltac:(lia) E Kp).
    destruct (Machine.newer from0 (at_time e)) eqn:F; [nia|].
    unfold Machine.newer in F.
    pose proof (older_is_not_newer newer e older from0 O3 ltac:(lia)) as Z0. cbn [nets] in Z0.
    unfold Machine.newer in Z0 at 1. rewrite F in Z0.
    assert (A : nets (Machine.newer from0) newer <= nets (fun _ => true) newer).
    { apply (nets_mono _ _ (since s)); [|trivial]. apply Forall_app in O4. apply O4. }
    rewrite Z.add_0_l in *. rewrite Z0. nia.
  - apply marks_hold_turn.
Qed.

Lemma all_under_turn : forall newer e older k,
  all_under q (given_up newer ++ less e k :: given_up older) -> all_under q (newer ++ e :: older).
Proof.
  unfold all_under. intros newer e older k H. apply Forall_app in H as [H1 H2].
  pose proof (Forall_inv H2) as H3. pose proof (Forall_inv_tail H2) as H4.
  unfold given_up in H1, H4. rewrite Forall_map in H1, H4. cbn in H1, H4.
  apply Forall_app. split; [exact H1|]. constructor; [exact H3|exact H4].
Qed.

Lemma in_turn_owes : forall start begin s l now, is_sound start -> since start <= begin ->
  in_turn start begin s l now -> all_under q l -> owes now s l.
Proof.
  intros start begin s l now Hs Hb H. induction H as [|s l now q' t c s' mk H IH Ht Hq' Hc E
    |s newer e older now q' t u s' k H IH Ht Hq' He Hu E]; intros A.
  - split; cbn; auto; try congruence. constructor.
  - destruct (all_under_head _ _ _ A) as [Q A']. cbn in Q. subst q'.
    exact (a_charge_is_owed now s l t c s' mk (IH A') Ht Hc E).
  - pose proof (all_under_turn _ _ _ _ A) as A'.
    apply (a_refund_is_owed now s newer e older q' t u s' k (IH A') Ht Hq'); auto.
    apply Forall_app in A' as [_ A']. exact (Forall_inv A').
Qed.

(** From a change on, whatever was charged before: no time of [d] microseconds holds more. *)
Theorem changing_bucket_bound_of_any_time : forall start begin s l now d x, is_sound start ->
  since start <= begin -> 0 < d -> in_turn start begin s l now -> all_under q l ->
  nets (within (x - d) x) l <= parameter q + L * (d - 1) / W.
Proof.
  intros start begin s l now d x Hs Hb Hd H A. pose proof quota_is_valid as (HL & HW & HB).
  pose proof (Z.div_pos (L * (d - 1)) W ltac:(nia) HW) as P0.
  induction H as [|s l now q' t c s' mk H IH Ht Hq' Hc E
    |s newer e older now q' t u s' k H IH Ht Hq' He Hu E].
  - cbn. lia.
  - destruct (all_under_head _ _ _ A) as [Q A']. cbn in Q. subst q'. specialize (IH A').
    pose proof (a_charge_is_owed now s l t c s' mk (in_turn_owes _ _ _ _ _ Hs Hb H A') Ht Hc E) as O.
    assert (Es : since s' = t).
    { unfold bucket_charge in E. destruct (rate q s) as [[? ?] ?]. destruct (judge q s t).
      inversion E. reflexivity. }
    destruct (within (x - d) x t) eqn:F; [|cbn [nets at_time net]; rewrite F; lia].
    destruct O as [(_ & O1 & _) _ _ O4 O5 O6 _]. destruct (O5 ltac:(discriminate)) as (_ & _ & O5').
    unfold within in F.
    specialize (O6 (x - d) ltac:(discriminate) ltac:(lia)). unfold exact in O6. rewrite Es in O6.
    pose proof (nets_mono (within (x - d) x) (newer (x - d)) _ _ O4
      ltac:(unfold within, newer; intros; lia)) as M.
    enough (nets (newer (x - d)) (Entry (Receipt q mk) t c true :: l) - parameter q <= L * (d - 1) / W)
      by lia.
    apply floor_ge; [assumption|]. nia.
  - specialize (IH (all_under_turn _ _ _ _ A)).
    pose proof (a_bucket_refunds_within _ _ _ _ _ _ _ (proj1 Hu) E).
    rewrite nets_app in *. rewrite nets_given_up. cbn [nets less at_time net] in *.
    rewrite nets_given_up. destruct (within _ _ _); lia.
Qed.

Theorem changing_bucket_bound : forall start begin s l now x, is_sound start -> since start <= begin ->
  in_turn start begin s l now -> all_under q l ->
  nets (within (x - W) x) l <= parameter q + L.
Proof.
  intros start begin s l now x Hs Hb H A. pose proof quota_is_valid as (HL & HW & _).
  pose proof (changing_bucket_bound_of_any_time start begin s l now W x Hs Hb HW H A).
  assert (L * (W - 1) / W <= L) by (apply Z.div_le_upper_bound; nia). lia.
Qed.
End InTurn.


(** Every state that charges and refunds lead to is a sound start for what follows. *)
Lemma reached_bucket_is_sound : forall s l now,
  reached changing_bucket (Bucket 0 0 0 0 0) 0 s l now -> is_sound s /\ since s <= now.
Proof.
  intros s l now H. induction H as [|s l now q t c s' mk H [IH1 IH2] Ht Hq Hc E
    |s newer e older now q t u s' k H [IH1 IH2] Ht Hq He Hu E].
  - unfold is_sound. cbn. lia.
  - pose proof (judge_is_sound q s t Hq IH1 ltac:(lia)) as J. pose proof (rate_is_sound q s Hq IH1) as R.
    cbn in E. unfold bucket_charge in E. destruct (rate q s) as [[l0 w] c0]. destruct (judge q s t) as [d r].
    destruct Hq as (HL & HW & HB). destruct J as (J1 & J2 & _). inversion E; subst s'.
    unfold is_sound. cbn. destruct (Z.eqb_spec w (window q)) as [<-|]; [lia|].
    pose proof (Z.div_pos (r * window q) w ltac:(nia) ltac:(lia)).
    pose proof (Z.div_lt_upper_bound (r * window q) w (window q) ltac:(lia) ltac:(nia)). lia.
  - destruct (a_bucket_refunds_no_more_than_is_owed q s t (from e) u s' k Hq IH1 ltac:(lia) ltac:(lia) E)
      as (S1 & _ & S3). split; [assumption|lia].
Qed.

(** A higher limit or burst denies nothing that the old one allowed. *)
Theorem a_raised_bucket_denies_nothing : forall q q' s t, valid_quota q -> is_sound s -> since s <= t ->
  rate_limit s = limit q -> rate_window s = window q ->
  limit q <= limit q' -> window q' = window q -> parameter q <= parameter q' ->
  free_under changing_bucket q s t <= free_under changing_bucket q' s t.
Proof.
  intros q q' s t Hq Hs Ht El Ew HL HW HB. cbn. pose proof Hq as (_ & W0 & _).
  enough (fst (judge q' s t) <= fst (judge q s t)) by lia.
  unfold judge. destruct (judge_pays q Hq s t Hs Ht El Ew) as [-> _].
  assert (R : exists l, limit q <= l /\ rate q' s = (l, window q, credited s)).
  { exists (limit q'). split; [assumption|]. unfold rate, is_faster. cbn. rewrite El, Ew, HW.
    replace (limit q' * window q <? limit q * window q) with false by (symmetry; nia).
    rewrite Z.eqb_refl. destruct (limit q =? limit q') eqn:E; [reflexivity|]. cbn.
    replace (window q =? 0) with false by (symmetry; lia). rewrite Z.div_mul by lia. reflexivity. }
  destruct R as (l & Hl & ->).
  pose proof (Z.div_le_mono ((t - since s) * limit q + credited s) ((t - since s) * l + credited s)
    (window q) W0 ltac:(nia)).
  destruct (Z.ltb_spec (((t - since s) * l + credited s) / window q) (owed s)),
    (Z.ltb_spec (((t - since s) * limit q + credited s) / window q) (owed s)); cbn; lia.
Qed.
