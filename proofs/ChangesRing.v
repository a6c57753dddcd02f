(** The log that [SlidingLog] and [SlidingBuckets] share, under changes and refunds. The model of
    [src/algorithm/ring.rs] and [lua/ring.lua].

    A record counts for its life after its stamp: the window under which it was charged, or the window of a
    later charge if that is shorter.

    [a_log_keeps_spent_units] and [changing_ring_bound] are the promises: every charge counts for the shortest
    of these windows, and from a change on no window has more than [L] net units. Refunds may be of any
    charge, also of one before the change. *)

From Proofs Require Import Changes Ring SlidingLog SlidingBuckets.

Record record := Record_ { number : Z; stamped : Z; life : Z; holds : Z }.

(** [last_seen] and [last_window] are the time and the window of the last charge, [next] is the number
    of the next record. *)
Record log := Log { records : list record; last_seen : Z; last_window : Z; next : Z }.

Section ChangingRing.
(** The stamp of a charge at a time, in a log of so many records. *)
Variable stamp : quota -> Z -> Z -> Z.

(** True if a record counts at a time. After a change of the window, the open bucket leaves early. *)
Definition leaves (q : quota) (s : log) (r : record) : Z :=
  let own := stamped r + Z.min (life r) (window q) in
  if window q <? last_window s then Z.min own (stamp q 0 (last_seen s) + window q)
  else if last_window s <? window q then Z.min own (last_seen s + last_window s)
  else own.

Definition counting (q : quota) (s : log) (now : Z) : list record :=
  filter (fun r => now <? leaves q s r) (records s).

Fixpoint sum (rs : list record) : Z :=
  match rs with [] => 0 | r :: older => holds r + sum older end.

(** The life of a record after a charge under a window. *)
Definition lived (w : Z) (s : log) (r : record) : record :=
  let life := if last_window s <? w then last_window s else Z.min (life r) w in
  Record_ (number r) (stamped r) life (holds r).

(** The newest record is stamped no later than a charge of now that leaves as it does. *)
Definition lowered (q : quota) (s : log) (rs : list record) : list record :=
  match rs with
  | [] => []
  | r :: older =>
      let most := if window q <? last_window s then stamp q 0 (last_seen s)
        else if last_window s <? window q then last_seen s else stamped r in
      Record_ (number r) (Z.min (stamped r) most) (life r) (holds r) :: older
  end.

Definition ring_charge (q : quota) (s : log) (now c : Z) : log * mark :=
  let live := counting q s now in
  let rs := map (lived (window q) s) (lowered q s live) in
  let one := Record_ (next s) (stamp q (Z.of_nat (length live) + 1) now) (window q) c in
  match rs with
  | [] => (Log [one] now (window q) (next s + 1), (next s, 0, 0))
  | r :: older =>
      let at_ := if now <? stamped r then stamped r else stamped one in
      if (at_ =? stamped r) && (life r =? window q)
      then (Log (Record_ (number r) (stamped r) (life r) (holds r + c) :: older) now (window q) (next s),
            (number r, 0, 0))
      else (Log (Record_ (next s) at_ (window q) c :: rs) now (window q) (next s + 1), (next s, 0, 0))
  end.

Definition take (i k : Z) (r : record) : record :=
  if number r =? i then Record_ (number r) (stamped r) (life r) (holds r - k) else r.

Definition ring_refund (q : quota) (s : log) (now : Z) (r : receipt) (u : Z) : log * Z :=
  let '(i, _, _) := left_mark r in
  match find (fun r => number r =? i) (counting q s now) with
  | None => (s, 0)
  | Some r =>
      let k := Z.max 0 (Z.min u (holds r)) in
      (Log (map (take i k) (records s)) (last_seen s) (last_window s) (next s), k)
  end.

(** The time at which the records that do not fit into [room] have left. *)
Fixpoint fits_after (room now : Z) (q : quota) (s : log) (rs : list record) : Z :=
  match rs with
  | [] => now
  | r :: older => if room <? holds r then leaves q s r else fits_after (room - holds r) now q s older
  end.

Definition changing_ring : limiter := {|
  kept := log;
  unused := Log [] 0 0 0;
  most_free := limit;
  free_under q s now := Z.max 0 (limit q - sum (counting q s now));
  charge_under := ring_charge;
  wait_under q s now c := fits_after (limit q - c) now q s (counting q s now) - now;
  refund_under := ring_refund
|}.

Hypothesis stamp_is_not_before : forall q count t, valid_quota q -> t <= stamp q count t.

(** The number of the record of a charge. *)
Definition number_of (e : entry) : Z := fst (fst (left_mark (from e))).

(** The units of a ledger in a record. *)
Fixpoint in_record (i : Z) (l : list entry) : Z :=
  match l with
  | [] => 0
  | e :: older => (if number_of e =? i then net e else 0) + in_record i older
  end.

(** The units that still count at a time: each charge for its own window, or for the window of a later
    charge if that is shorter. *)
Fixpoint still (now most : Z) (l : list entry) : Z :=
  match l with
  | [] => 0
  | e :: older =>
      let own := Z.min most (window (entry_quota e)) in
      (if now <? at_time e + own then net e else 0) + still now own older
  end.

(** Each charge that still counts at a time is in a record that lasts as long. *)
Fixpoint covers (rs : list record) (now most : Z) (l : list entry) : Prop :=
  match l with
  | [] => True
  | e :: older =>
      let own := Z.min most (window (entry_quota e)) in
      (at_time e + own <= now \/
       exists r, In r rs /\ number r = number_of e /\ at_time e <= stamped r /\ own <= life r) /\
      covers rs now own older
  end.

Fixpoint numbered (bound : Z) (rs : list record) : Prop :=
  match rs with [] => True | r :: older => number r < bound /\ numbered (number r) older end.

Definition newest_window (w : Z) (l : list entry) : Prop :=
  match l with [] => True | e :: _ => window (entry_quota e) = w end.

Record holds_all (s : log) (l : list entry) : Prop := {
  are_numbered : numbered (next s) (records s);
  hold_the_ledger : Forall (fun r => holds r = in_record (number r) l) (records s);
  are_older : Forall (fun e => number_of e < next s /\ at_time e <= last_seen s) l;
  has_the_window : newest_window (last_window s) l;
  cover_the_ledger : covers (records s) (last_seen s) (last_window s) l
}.

(** Records keep their numbers and units. *)
Lemma numbered_mono : forall a b rs, a <= b -> numbered a rs -> numbered b rs.
Proof. destruct rs as [|r rs]; cbn; intuition lia. Qed.

Lemma numbered_filter : forall p b rs, numbered b rs -> numbered b (filter p rs).
Proof.
  intros p b rs. revert b. induction rs as [|r rs IH]; cbn; [trivial|]. intros b [Hb Hr].
  destruct (p r); cbn; [auto|]. apply (numbered_mono (number r)); [lia|auto].
Qed.

Lemma numbered_map : forall f b rs, (forall r, number (f r) = number r) ->
  numbered b rs -> numbered b (map f rs).
Proof.
  intros f b rs Hf. revert b. induction rs as [|r rs IH]; cbn; [trivial|]. intros b [Hb Hr].
  rewrite Hf. auto.
Qed.

Lemma numbered_below : forall b rs, numbered b rs -> Forall (fun r => number r < b) rs.
Proof.
  intros b rs. revert b. induction rs as [|r rs IH]; cbn; [constructor|]. intros b [Hb Hr].
  constructor; [assumption|]. eapply Forall_impl; [|exact (IH _ Hr)]. cbn. intros. lia.
Qed.

Lemma in_record_none : forall i l, Forall (fun e => number_of e < i) l -> in_record i l = 0.
Proof.
  intros i l H. induction H as [|e l He _ IH]; cbn; [trivial|].
  replace (number_of e =? i) with false by (symmetry; lia). lia.
Qed.

Lemma in_record_nonneg : forall i now l, sound_ledger now l -> 0 <= in_record i l.
Proof.
  intros i now l H. induction H as [|e l He _ IH]; cbn; [lia|]. destruct (_ =? _); lia.
Qed.

Lemma covers_mono : forall rs now a b l, b <= a -> covers rs now a l -> covers rs now b l.
Proof.
  intros rs now a b l. revert a b. induction l as [|e l IH]; cbn; [trivial|].
  intros a b Hab [He Hl]. split.
  - destruct He as [He|(r & Hr & Hn & Hs & Hw)]; [left; lia|right]. exists r. repeat split; auto; lia.
  - revert Hl. apply IH. lia.
Qed.

(** A window longer than the window of the last charge makes no charge count longer. *)
Lemma covers_any : forall rs now w a l, newest_window w l -> covers rs now w l -> covers rs now a l.
Proof.
  intros rs now w a [|e l]; cbn; [trivial|]. intros E H. rewrite E, Z.min_id in H.
  change (covers rs now a (e :: l)). apply (covers_mono _ _ (Z.max a w)); [lia|].
  cbn. rewrite E. replace (Z.min (Z.max a w) w) with w by lia. exact H.
Qed.

Lemma still_any : forall now w a l, newest_window w l -> still now a l = still now (Z.min a w) l.
Proof.
  intros now w a [|e l]; cbn; [trivial|]. intros E. rewrite E.
  replace (Z.min (Z.min a w) w) with (Z.min a w) by lia. reflexivity.
Qed.

(** Records that are replaced by others that last as long. *)
Lemma covers_step : forall rs rs' now later l most, now <= later ->
  Forall (fun e => at_time e <= now) l ->
  (forall r a own, In r rs -> a <= stamped r -> a <= now -> own <= life r -> own <= most ->
    a + own <= later \/
    exists r', In r' rs' /\ number r' = number r /\ a <= stamped r' /\ own <= life r') ->
  covers rs now most l -> covers rs' later most l.
Proof.
  intros rs rs' now later l. induction l as [|e l IH]; cbn; [trivial|].
  intros most Hn Ha Hr [He Hl]. pose proof (Forall_inv Ha) as Ha1. pose proof (Forall_inv_tail Ha) as Ha2.
  cbn in Ha1. split.
  - destruct He as [He|(r & Hi & Hnum & Hs & Hw)]; [left; lia|].
    destruct (Hr r (at_time e) _ Hi Hs Ha1 Hw ltac:(lia)) as [G|(r' & Hi' & Hn' & Hs' & Hw')];
      [left; exact G|right]. exists r'. repeat split; auto. lia.
  - apply IH; auto. intros r a own Hi Hs Han Hw Hm. apply (Hr r a own); auto. lia.
Qed.

(** The sum of the records counts each charge that is in one of them. *)
Fixpoint found (rs : list record) (now most : Z) (l : list entry) : Prop :=
  match l with
  | [] => True
  | e :: older =>
      let own := Z.min most (window (entry_quota e)) in
      (now < at_time e + own -> exists r, In r rs /\ number r = number_of e) /\ found rs now own older
  end.

Fixpoint sum_of (f : record -> Z) (rs : list record) : Z :=
  match rs with [] => 0 | r :: older => f r + sum_of f older end.

Lemma sum_of_add : forall f g rs, sum_of (fun r => f r + g r) rs = sum_of f rs + sum_of g rs.
Proof. induction rs; cbn; lia. Qed.

Lemma sum_of_nonneg : forall f rs, (forall r, 0 <= f r) -> 0 <= sum_of f rs.
Proof. intros f rs H. induction rs as [|r rs IH]; cbn; [lia|]. specialize (H r). lia. Qed.

Lemma sum_of_one : forall f r rs, (forall r, 0 <= f r) -> In r rs -> f r <= sum_of f rs.
Proof.
  intros f r rs H. induction rs as [|r' rs IH]; cbn; [contradiction|].
  pose proof (sum_of_nonneg f rs H). pose proof (H r').
  intros [->|Hi]; [lia|]. specialize (IH Hi). lia.
Qed.

Lemma found_is_counted : forall rs now now' most l, sound_ledger now' l -> found rs now most l ->
  still now most l <= sum_of (fun r => in_record (number r) l) rs.
Proof.
  intros rs now now' most l H. revert most. induction H as [|e l He _ IH]; cbn; intros most F.
  - apply sum_of_nonneg. intros. lia.
  - destruct F as [F1 F2]. specialize (IH _ F2). rewrite sum_of_add.
    set (f := fun r => if number_of e =? number r then net e else 0).
    assert (P : forall r, 0 <= f r) by (intros r; unfold f; destruct (_ =? _); lia).
    pose proof (sum_of_nonneg f rs P).
    destruct (Z.ltb_spec now (at_time e + Z.min most (window (entry_quota e)))) as [G|G]; [|lia].
    destruct (F1 G) as (r & Hi & Hn). pose proof (sum_of_one f r rs P Hi) as O.
    unfold f at 1 in O. rewrite Hn, Z.eqb_refl in O. lia.
Qed.

Lemma sum_is_in_record : forall l rs, Forall (fun r => holds r = in_record (number r) l) rs ->
  sum rs = sum_of (fun r => in_record (number r) l) rs.
Proof. intros l rs H. induction H as [|r rs Hr _ IH]; cbn; lia. Qed.

Lemma forall_filter : forall (P : record -> Prop) p rs, Forall P rs -> Forall P (filter p rs).
Proof. intros P p rs H. induction H; cbn; [constructor|]. destruct (p x); auto. Qed.

(** A record that lasts leaves no earlier than its charges do, under any quota. *)
Lemma leaves_late : forall q s r a own, valid_quota q -> a <= stamped r -> a <= last_seen s ->
  own <= life r -> own <= window q -> own <= last_window s -> a + own <= leaves q s r.
Proof.
  intros q s r a own Hq Hs Ha Hl Hw Hlw. unfold leaves.
  pose proof (stamp_is_not_before q 0 (last_seen s) Hq).
  destruct (_ <? _); [lia|]. destruct (_ <? _); lia.
Qed.

(** Spent units are kept, whatever has changed since. *)
Theorem a_log_keeps_spent_units : forall q s l now t, sound_ledger now l -> holds_all s l ->
  valid_quota q -> last_seen s <= t ->
  still t (window q) l <= sum (counting q s t).
Proof.
  intros q s l now t Sl H Hq Ht. destruct H as [Hn Hh Ho Hw Hc].
  rewrite (still_any t (last_window s)) by assumption.
  rewrite (sum_is_in_record l) by (apply forall_filter; assumption).
  apply (found_is_counted _ _ now); [assumption|].
  apply (covers_any _ _ _ (Z.min (window q) (last_window s))) in Hc; [|assumption].
  assert (G : Forall (fun e => at_time e <= last_seen s) l)
    by (eapply Forall_impl; [|exact Ho]; cbn; tauto).
  clear Hw Ho Hh Hn Sl. remember (Z.min (window q) (last_window s)) as most.
  assert (Hm : most <= Z.min (window q) (last_window s)) by lia. clear Heqmost.
  revert most Hm Hc. induction G as [|e l Ge G IH]; cbn; [trivial|]. intros most Hm [He Hl]. split.
  - intros Hlt. destruct He as [He|(r & Hi & Hnum & Hs & Hlife)]; [lia|]. exists r. split; [|assumption].
    unfold counting. apply filter_In. split; [assumption|]. apply Z.ltb_lt.
    pose proof (leaves_late q s r (at_time e) _ Hq Hs Ge Hlife ltac:(lia) ltac:(lia)). lia.
  - apply IH; [lia|assumption].
Qed.

(** The records that a charge finds: those that count, in their new lives. *)
Definition found_by (q : quota) (s : log) (now : Z) : list record :=
  map (lived (window q) s) (lowered q s (counting q s now)).

Lemma found_by_is_numbered : forall q s l now, holds_all s l -> numbered (next s) (found_by q s now).
Proof.
  intros q s l now H. apply numbered_map; [reflexivity|].
  pose proof (numbered_filter (fun r => now <? leaves q s r) _ _ (are_numbered s l H)) as N.
  unfold counting. destruct (filter _ _); cbn in *; auto.
Qed.

Lemma found_by_holds : forall q s l now, holds_all s l ->
  Forall (fun r => holds r = in_record (number r) l) (found_by q s now).
Proof.
  intros q s l now H. unfold found_by. apply Forall_map. cbn.
  pose proof (forall_filter _ (fun r => now <? leaves q s r) _ (hold_the_ledger s l H)) as F.
  unfold counting. destruct (filter _ _); cbn; [constructor|].
  constructor; [exact (Forall_inv F)|exact (Forall_inv_tail F)].
Qed.

Lemma found_by_covers : forall q s l now, holds_all s l -> valid_quota q -> last_seen s <= now ->
  covers (found_by q s now) now (window q) l.
Proof.
  intros q s l now H Hq Hn. destruct H as [_ _ Ho Hw Hc].
  set (most := Z.min (window q) (last_window s)).
  apply (covers_any _ _ _ most) in Hc; [|assumption].
  assert (G : covers (found_by q s now) now most l).
  { apply (covers_step (records s) _ (last_seen s)); auto.
    - eapply Forall_impl; [|exact Ho]. cbn. tauto.
    - intros r a own Hi Hs Ha Hl Hm. subst most.
      pose proof (leaves_late q s r a own Hq Hs Ha Hl ltac:(lia) ltac:(lia)) as L.
      destruct (Z.ltb_spec now (leaves q s r)) as [C|C]; [right|left; lia].
      assert (I : In r (counting q s now)) by (apply filter_In; split; [assumption|lia]).
      pose proof (stamp_is_not_before q 0 (last_seen s) Hq).
      assert (J : exists r', In r' (lowered q s (counting q s now)) /\ number r' = number r /\
        a <= stamped r' /\ own <= life r').
      { destruct (counting q s now) as [|r0 rs]; [contradiction|]. destruct I as [->|I].
        - eexists. split; [left; reflexivity|]. cbn. repeat split; [|lia].
          destruct (_ <? _); [lia|]. destruct (_ <? _); lia.
        - exists r. split; [right; assumption|]. auto. }
      destruct J as (r' & I' & N' & S' & L'). exists (lived (window q) s r').
      split; [apply in_map; assumption|]. cbn. repeat split; auto.
      destruct (Z.ltb_spec (last_window s) (window q)); lia. }
  (* A window longer than the window of the last charge makes no charge count longer. *)
  destruct l as [|e l]; [exact I|]. cbn in Hw. cbn in G |- *. subst most. rewrite Hw in *.
  replace (Z.min (Z.min (window q) (last_window s)) (last_window s))
    with (Z.min (window q) (last_window s)) in G by lia. exact G.
Qed.

Lemma covers_more : forall rs rs' now most l,
  (forall r, In r rs -> exists r', In r' rs' /\ number r' = number r /\ stamped r' = stamped r /\
    life r' = life r) ->
  covers rs now most l -> covers rs' now most l.
Proof.
  intros rs rs' now most l H. revert most. induction l as [|e l IH]; cbn; [trivial|].
  intros most [He Hl]. split; [|auto]. destruct He as [He|(r & Hi & Hn & Hs & Hw)]; [left; assumption|right].
  destruct (H r Hi) as (r' & Hi' & Hn' & Hs' & Hl'). exists r'. repeat split; auto; lia.
Qed.

Lemma a_charge_is_kept : forall q s l now t c s' mk, sound_ledger now l -> holds_all s l ->
  last_seen s <= t -> valid_quota q -> ring_charge q s t c = (s', mk) ->
  holds_all s' (Entry (Receipt q mk) t c true :: l) /\ last_seen s' = t.
Proof.
  intros q s l now t c s' mk Sl H Ht Hq E.
  pose proof (found_by_is_numbered q s l t H) as N. pose proof (found_by_holds q s l t H) as F.
  pose proof (found_by_covers q s l t H Hq Ht) as C. destruct H as [_ _ Ho _ _].
  unfold ring_charge in E. fold (found_by q s t) in E. cbv zeta in E.
  set (one := stamp q (Z.of_nat (length (counting q s t)) + 1) t) in *.
  assert (S1 : t <= one) by (apply stamp_is_not_before; assumption).
  assert (O1 : in_record (next s) l = 0).
  { apply in_record_none. eapply Forall_impl; [|exact Ho]. cbn. tauto. }
  destruct (found_by q s t) as [|r older].
  - inversion E; subst s' mk. split; [|reflexivity]. split; cbn.
    + lia.
    + constructor; [|constructor]. cbn. unfold number_of. cbn. rewrite Z.eqb_refl. lia.
    + constructor; [cbn; lia|]. eapply Forall_impl; [|exact Ho]. cbn. intros. lia.
    + reflexivity.
    + rewrite Z.min_id. split; [right; eexists; split; [left; reflexivity|cbn; lia]|].
      eapply covers_more; [|exact C]. cbn. contradiction.
  - cbn [stamped] in E.
    set (at_ := if t <? stamped r then stamped r else one) in *.
    assert (S2 : t <= at_) by (unfold at_; destruct (Z.ltb_spec t (stamped r)); lia).
    destruct ((at_ =? stamped r) && (life r =? window q)) eqn:M; inversion E; subst s' mk;
      (split; [|reflexivity]); split; cbn.
    + exact N.
    + destruct N as [_ N]. apply numbered_below in N.
      pose proof (Forall_inv F) as F1. pose proof (Forall_inv_tail F) as F2. cbn in F1.
      constructor; [cbn; unfold number_of; cbn; rewrite Z.eqb_refl; lia|].
      rewrite Forall_forall in *. intros r' I. cbn. unfold number_of. cbn.
      specialize (N r' I). specialize (F2 r' I). cbn in N, F2.
      replace (number r =? number r') with false by (symmetry; lia). lia.
    + constructor; [cbn; destruct N; lia|]. eapply Forall_impl; [|exact Ho]. cbn. intros. lia.
    + reflexivity.
    + apply andb_prop in M as [M1 M2]. rewrite Z.min_id. split.
      * right. eexists. split; [left; reflexivity|cbn; lia].
      * eapply covers_more; [|exact C]. intros r' [<-|I].
        -- eexists. split; [left; reflexivity|]. cbn. auto.
        -- exists r'. cbn. auto.
    + split; [lia|]. exact N.
    + constructor; [cbn; unfold number_of; cbn; rewrite Z.eqb_refl; lia|].
      apply numbered_below in N. rewrite Forall_forall in *. intros r' I. cbn. unfold number_of. cbn.
      specialize (N r' I). specialize (F r' I). cbn in N, F.
      replace (next s =? number r') with false by (symmetry; lia). lia.
    + constructor; [cbn; lia|]. eapply Forall_impl; [|exact Ho]. cbn. intros. lia.
    + reflexivity.
    + rewrite Z.min_id. split.
      * right. eexists. split; [left; reflexivity|cbn; lia].
      * eapply covers_more; [|exact C]. intros r' I. exists r'. cbn. auto.
Qed.

(** Refunds. *)

Theorem a_log_refunds_within : refunds_within changing_ring.
Proof.
  intros q s t [cq [[i m1] m2]] u s' k Hu. cbn. unfold ring_refund. cbn.
  destruct (find _ _); intros E; inversion E; lia.
Qed.

Lemma in_record_less : forall i newer e older k,
  in_record i (newer ++ less e k :: older) =
  in_record i (newer ++ e :: older) - (if number_of e =? i then k else 0).
Proof.
  intros i newer e older k. induction newer as [|e' newer IH]; cbn.
  - change (number_of (less e k)) with (number_of e). destruct (_ =? _); lia.
  - rewrite IH. lia.
Qed.

Lemma covers_less : forall rs now newer e older k most,
  covers rs now most (newer ++ e :: older) -> covers rs now most (newer ++ less e k :: older).
Proof.
  intros rs now newer e older k. induction newer as [|e' newer IH]; cbn; intros most [He Hl];
    split; auto.
Qed.

Lemma a_refund_is_kept : forall q s newer e older t u s' k,
  holds_all s (newer ++ e :: older) -> ring_refund q s t (from e) u = (s', k) ->
  holds_all s' (newer ++ less e k :: older) /\ last_seen s' = last_seen s.
Proof.
  intros q s newer e older t u s' k H E.
  assert (G : (s' = s /\ k = 0) \/
    s' = Log (map (take (number_of e) k) (records s)) (last_seen s) (last_window s) (next s)).
  { unfold ring_refund in E. destruct e as [[cq [[i m1] m2]] a n h]. cbn in E. unfold number_of. cbn.
    destruct (find _ _); inversion E; auto. }
  clear E. destruct H as [N F Ho Hw C].
  assert (Ho' : Forall (fun e => number_of e < next s /\ at_time e <= last_seen s)
    (newer ++ less e k :: older)).
  { apply Forall_app in Ho as [H1 H2]. apply Forall_app. split; [assumption|].
    constructor; [exact (Forall_inv H2)|exact (Forall_inv_tail H2)]. }
  assert (Hw' : newest_window (last_window s) (newer ++ less e k :: older)) by (destruct newer; exact Hw).
  apply (covers_less _ _ _ _ _ k) in C.
  destruct G as [[-> ->] | ->]; (split; [|reflexivity]); split; cbn [records last_seen last_window next];
    auto.
  - eapply Forall_impl; [|exact F]. intros r Hr. cbv beta in *. rewrite in_record_less.
    destruct (_ =? _); lia.
  - apply numbered_map; [|exact N]. intros r. unfold take. destruct (_ =? _); reflexivity.
  - apply Forall_map. eapply Forall_impl; [|exact F]. intros r Hr. cbv beta in *.
    replace (number (take (number_of e) k r)) with (number r)
      by (unfold take; destruct (_ =? _); reflexivity).
    rewrite in_record_less, <- Hr. unfold take. rewrite Z.eqb_sym. destruct (_ =? _); cbn; lia.
  - eapply covers_more; [|exact C]. intros r I. exists (take (number_of e) k r).
    split; [apply in_map; assumption|]. unfold take. destruct (_ =? _); cbn; auto.
Qed.

Lemma reached_holds_all : forall s l now, reached changing_ring (Log [] 0 0 0) 0 s l now ->
  holds_all s l /\ last_seen s <= now.
Proof.
  intros s l now H. pose proof H as H'. induction H as [|s l now q t c s' mk H IH Ht Hq Hc E
    |s newer e older now q t u s' k H IH Ht Hq He Hu E].
  - split; [|cbn; lia]. split; cbn; auto; constructor.
  - destruct (IH H) as [A L]. pose proof (reached_is_sound _ _ _ _ _ _ a_log_refunds_within H) as S.
    destruct (a_charge_is_kept q s l now t c s' mk S A ltac:(lia) Hq E) as [B M]. split; [assumption|lia].
  - destruct (IH H) as [A L]. destruct (a_refund_is_kept q s newer e older t u s' k A E) as [B M].
    split; [assumption|lia].
Qed.

(** The bound, from a change on: of the newest charges, all of which are under one quota. *)

Lemma still_counts_the_newest : forall now' now w n l, sound_ledger now' l ->
  Forall (fun e => window (entry_quota e) = w) (firstn n l) ->
  nets (newer (now - w)) (firstn n l) <= still now w l.
Proof.
  assert (P : forall now' now most l, sound_ledger now' l -> 0 <= still now most l).
  { intros now' now most l H. revert most. induction H as [|e l He _ IH]; cbn; intros; [lia|].
    specialize (IH (Z.min most (window (entry_quota e)))). destruct (_ <? _); lia. }
  intros now' now w n l H. revert n. induction H as [|e l He Hs IH]; intros [|n] A; cbn; try lia.
  - pose proof (P now' now w (e :: l) ltac:(constructor; assumption)) as Q. cbn in Q. exact Q.
  - pose proof (Forall_inv A) as E. pose proof (Forall_inv_tail A) as A'. cbn in E.
    rewrite E, Z.min_id. specialize (IH n A'). unfold newer at 1.
    destruct (Z.ltb_spec (now - w) (at_time e)), (Z.ltb_spec now (at_time e + w)); lia.
Qed.

Theorem changing_ring_bound : forall q s l now n x, valid_quota q ->
  reached changing_ring (Log [] 0 0 0) 0 s l now -> all_under q (firstn n l) ->
  nets (within (x - window q) x) (firstn n l) <= limit q.
Proof.
  intros q s l now n x Hq H A. pose proof Hq as (HL & HW & _).
  apply (room_is_a_bound changing_ring (Log [] 0 0 0) 0 q _ (limit q) a_log_refunds_within ltac:(lia))
    with (s := s) (now := now); auto. clear s l now n H A.
  intros s l now t c n H Ht _ Hc A Hx.
  destruct (reached_holds_all s l now H) as [B M].
  pose proof (reached_is_sound _ _ _ _ _ _ a_log_refunds_within H) as S.
  pose proof (a_log_keeps_spent_units q s l now t S B Hq ltac:(lia)) as K.
  assert (A' : Forall (fun e => window (entry_quota e) = window q) (firstn n l)).
  { eapply Forall_impl; [|exact A]. cbn. intros e ->. reflexivity. }
  pose proof (still_counts_the_newest now t (window q) n l S A').
  assert (S' : sound_ledger now (firstn n l)).
  { apply Forall_forall. intros e I. apply (proj1 (Forall_forall _ _) S).
    rewrite <- (firstn_skipn n l). apply in_or_app. left. exact I. }
  pose proof (nets_mono (within (x - window q) x) (newer (t - window q)) now _ S') as N.
  cbn in Hc. unfold within, newer in *.
  specialize (N ltac:(intros; lia)). lia.
Qed.
End ChangingRing.

(** The stamp of a log with so many records, and of buckets. *)
Definition stamp_of_log (q : quota) (count now : Z) : Z :=
  if (edges <? Z.max (limit q) count) && (edges <? window q) then bucket_end (window q) edges now else now.

Definition stamp_of_buckets (q : quota) (_ now : Z) : Z := bucket_end (window q) (parameter q) now.

Definition changing_log : limiter := changing_ring stamp_of_log.
Definition changing_buckets : limiter := changing_ring stamp_of_buckets.

Lemma stamp_of_log_is_not_before : forall q count t, valid_quota q -> t <= stamp_of_log q count t.
Proof.
  intros q count t (_ & HW & _). unfold stamp_of_log.
  pose proof (bucket_ends_later (window q) edges t HW ltac:(easy)). destruct (_ && _); lia.
Qed.

Lemma stamp_of_buckets_is_not_before : forall q (count : Z) t, valid_quota q ->
  t <= stamp_of_buckets q count t.
Proof.
  intros q count t (_ & HW & Hn). unfold stamp_of_buckets.
  pose proof (bucket_ends_later (window q) (parameter q) t HW Hn). lia.
Qed.
